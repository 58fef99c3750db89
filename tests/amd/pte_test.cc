#include "schemas/amd/pte.h"

#include <gtest/gtest.h>

namespace tg::amd {
namespace {

// The entries that amd-structs quotes from the real driver on gfx12.
TEST(Pte, Gfx12ExamplesOfTheRealDriver) {
  const Pte table = DecodePte(PteFormat::kGfx12, 0, 0x0000000002000001);
  EXPECT_TRUE(table.valid);
  EXPECT_FALSE(table.leaf);
  EXPECT_EQ(table.address, 0x2000000u);

  const Pte page = DecodePte(PteFormat::kGfx12, 3, 0x80c0000100000077);
  EXPECT_TRUE(page.valid && page.system && page.snooped && page.leaf);
  EXPECT_TRUE(page.read && page.write && page.execute);
  EXPECT_EQ(page.mtype, kMtypeUncached);
  EXPECT_EQ(page.address, 0x100000000u);
  EXPECT_EQ(DescribePte(PteFormat::kGfx12, page), "valid system snooped rwx UC");

  const Pte huge = DecodePte(PteFormat::kGfx12, 2, 0x8000000002634671);
  EXPECT_TRUE(huge.valid && huge.leaf);
  EXPECT_FALSE(huge.system);
  EXPECT_EQ(huge.frag, 12);
  EXPECT_EQ(huge.address, 0x2634000u);
  EXPECT_EQ(huge.mtype, kMtypeCached);

  EXPECT_EQ(EncodePte(PteFormat::kGfx12, 3, page), 0x80c0000100000077u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx12, 2, huge), 0x8000000002634671u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx12, 0, table), 0x0000000002000001u);
}

Pte Leaf(uint64_t address, uint8_t mtype) {
  Pte pte;
  pte.valid = pte.read = pte.write = pte.execute = pte.leaf = true;
  pte.address = address;
  pte.mtype = mtype;
  return pte;
}

Pte Table(uint64_t address) {
  Pte pte;
  pte.valid = true;
  pte.address = address;
  return pte;
}

TEST(Pte, BitsOfEachFormat) {
  // kernel: AMDGPU_PTE_MTYPE_NV10 at 48, AMDGPU_PDE_PTE = bit 54.
  EXPECT_EQ(EncodePte(PteFormat::kGfx11, 3, Leaf(0x1000, 3)), 0x0003000000001071u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx11, 2, Leaf(0x200000, 0)), 0x0040000000200071u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx11, 2, Table(0x3000)), 0x3001u);
  // kernel: AMDGPU_PTE_MTYPE_VG10 at 57, AMDGPU_PDE_BFS(9) at 59, AMDGPU_PTE_TF = bit 56.
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 3, Leaf(0x1000, 3)), 0x0600000000001071u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 2, Leaf(0x200000, 0)), 0x0000000000200071u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 1, Leaf(0x40000000, 0)), 0x0040000040000071u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 0, Table(0x3000)), 0x3001u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 1, Table(0x3000)), 0x4800000000003001u);
  EXPECT_EQ(EncodePte(PteFormat::kGfx9, 2, Table(0x3000)), 0x0100000000003001u);
  // kernel: AMDGPU_PTE_MTYPE_GFX12 at 54, IS_PTE and PDE_PTE both bit 63.
  EXPECT_EQ(EncodePte(PteFormat::kGfx12, 1, Leaf(0x40000000, 3)), 0x80c0000040000071u);
}

TEST(Pte, WhatIsALeaf) {
  EXPECT_TRUE(DecodePte(PteFormat::kGfx9, 2, 0x200071).leaf);  // no TF
  EXPECT_FALSE(DecodePte(PteFormat::kGfx9, 2, 0x0100000000003001).leaf);
  EXPECT_FALSE(DecodePte(PteFormat::kGfx9, 1, 0x4800000000003001).leaf);
  EXPECT_FALSE(DecodePte(PteFormat::kGfx11, 2, 0x3001).leaf);
  EXPECT_TRUE(DecodePte(PteFormat::kGfx11, 3, 0x3001).leaf);
  EXPECT_TRUE(DecodePte(PteFormat::kGfx12, 3, 0x3001).leaf);
}

TEST(Pte, EncodeAfterDecodeIsTheSameForWhatTheDriverWrites) {
  for (const PteFormat format : {PteFormat::kGfx9, PteFormat::kGfx11, PteFormat::kGfx12}) {
    for (int level = 0; level < kPageLevels; ++level) {
      for (const bool leaf : {false, true}) {
        if (!leaf && level == kPageLeafLevel) continue;
        Pte pte = leaf ? Leaf(0x7fff12345000, 3) : Table(0x2001000);
        pte.system = leaf;
        pte.frag = leaf ? 9 : 0;
        EXPECT_EQ(DecodePte(format, level, EncodePte(format, level, pte)), pte)
            << PteFormatName(format) << " level " << level << " leaf " << leaf;
      }
    }
  }
}

TEST(Pte, LevelsAndFormats) {
  EXPECT_EQ(LevelCover(0), 512ull << 30);
  EXPECT_EQ(LevelCover(1), 1ull << 30);
  EXPECT_EQ(LevelCover(2), 2ull << 20);
  EXPECT_EQ(LevelCover(3), 4ull << 10);
  EXPECT_EQ(LevelIndex(3, 0x1234567000), 0x167u);
  EXPECT_EQ(LevelIndex(0, 0x8000000000), 1u);
  EXPECT_EQ(PteFormatFor({9, 4, 3}), PteFormat::kGfx9);
  EXPECT_EQ(PteFormatFor({9, 5, 0}), PteFormat::kGfx9);
  EXPECT_EQ(PteFormatFor({11, 0, 0}), PteFormat::kGfx11);
  EXPECT_EQ(PteFormatFor({12, 0, 1}), PteFormat::kGfx12);
}

}  // namespace
}  // namespace tg::amd
