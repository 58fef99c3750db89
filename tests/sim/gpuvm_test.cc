// Walks of hand-made page tables. Entries as seen in traces of the real driver (gfx12), and
// composed from the bit tables (gfx11).
#include "replay/sim/gpuvm.h"

#include <gtest/gtest.h>

#include "tests/sim/rig.h"

namespace tg::test {
namespace {

using sim::Translation;

void Put(Rig& rig, uint64_t table, uint64_t index, uint64_t entry) {
  uint8_t bytes[8];
  StoreLe(bytes, entry);
  rig.gpu->BarWrite(0, table + index * 8, bytes);
}

// VA 0x2000_0000_0000 + x: root entry 0, PDB1 entry 0, PDB0 entry x >> 21.
TEST(GpuVm, WalksEntriesOfGfx12) {
  Rig rig("navi48");
  rig.Open();
  Put(rig, 0, 4, 0x0000000002800001);          // root -> table at 0x2800000
  Put(rig, 0x2800000, 0, 0x0000000002801001);  // -> 0x2801000
  Put(rig, 0x2801000, 0, 0x0000000002802001);  // -> 0x2802000
  Put(rig, 0x2801000, 1, 0x8000000002634671);  // 2 MiB leaf, RWX, fragment 12, address 0x2634000
  Put(rig, 0x2802000, 3, 0x80c0000100000077);  // system page at DMA 0x1_0000_0000
  Put(rig, 0x2802000, 4, 0x8000000000005031);  // VRAM page 0x5000, read only
  Put(rig, 0x2802000, 5, 0x8000000000005070);  // not valid
  const uint64_t base = 0x2000'0000'0000 + (4ull << 39);
  sim::GpuVm& vm = rig.gpu->vm();

  Translation page = vm.Walk(base + 0x3010, true);
  EXPECT_EQ(page.kind, Translation::Kind::kHost);
  EXPECT_EQ(page.address, 0x1'0000'0010u);
  EXPECT_EQ(page.bytes, 0xff0u);

  // A huge leaf's address need not be aligned to what it covers: add, never or.
  Translation huge = vm.Walk(base + (2 << 20) + 0x1fe123, false);
  EXPECT_EQ(huge.kind, Translation::Kind::kVram);
  EXPECT_EQ(huge.address, 0x2634000u + 0x1fe123u);
  EXPECT_EQ(huge.bytes, 0x200000u - 0x1fe123u);

  EXPECT_EQ(vm.Walk(base + 0x4000, false).address, 0x5000u);
  Translation denied = vm.Walk(base + 0x4000, true);
  EXPECT_EQ(denied.kind, Translation::Kind::kFault);
  EXPECT_EQ(denied.permissions, 4u);  // write not allowed
  EXPECT_EQ(denied.walker_error, 0u);
  Translation invalid = vm.Walk(base + 0x5000, false);
  EXPECT_EQ(invalid.kind, Translation::Kind::kFault);
  EXPECT_EQ(invalid.permissions & 1, 1u);
  // No table at all: the level says where the walk ended.
  EXPECT_NE(vm.Walk(base + (5ull << 30), false).walker_error, 0u);
}

TEST(GpuVm, WalksEntriesOfGfx11) {
  Rig rig;
  rig.Open();
  Put(rig, 0, 4, 0x0000000002800001);
  Put(rig, 0x2800000, 0, 0x0000000002801001);
  // 2 MiB leaf: bit 54 PDE_PTE, RWX
  Put(rig, 0x2801000, 1, 0x0040000003000071);
  // 1 GiB leaf above it
  Put(rig, 0x2800000, 1, 0x0040000040000071);
  const uint64_t base = 0x2000'0000'0000 + (4ull << 39);
  sim::GpuVm& vm = rig.gpu->vm();
  EXPECT_EQ(vm.Walk(base + (2 << 20) + 5, true).address, 0x3000005u);
  const Translation gigabyte = vm.Walk(base + (1 << 30) + 0x12345678, true);
  EXPECT_EQ(gigabyte.address, 0x40000000u + 0x12345678u);
  EXPECT_EQ(gigabyte.bytes, (1u << 30) - 0x12345678u);
}

TEST(GpuVm, AddressesOutsideOfTheContext) {
  Rig rig;
  rig.Open();
  sim::GpuVm& vm = rig.gpu->vm();
  EXPECT_EQ(vm.Walk(0x1000, false).kind, Translation::Kind::kFault);
  EXPECT_EQ(vm.Walk(0x1fff'ffff'f000, false).kind, Translation::Kind::kFault);
  EXPECT_EQ(vm.Walk(UINT64_MAX, false).kind, Translation::Kind::kFault);
  // The frame buffer by its MC address is not translated.
  const Translation direct = vm.Walk(0x8000000000 + 0x3000, true);
  EXPECT_EQ(direct.kind, Translation::Kind::kVram);
  EXPECT_EQ(direct.address, 0x3000u);
}

TEST(GpuVm, TablesThatLieOutsideOfVram) {
  Rig rig;
  rig.Open();
  Put(rig, 0, 4, 0x0000fffffffff001);
  EXPECT_EQ(rig.gpu->vm().Walk(0x2000'0000'0000 + (4ull << 39), false).kind,
            Translation::Kind::kFault);
  // A table that points at itself ends after four levels.
  Put(rig, 0, 5, 0x0000000000000001);
  Put(rig, 0, 0, 0x0000000000000001);
  rig.gpu->vm().Walk(0x2000'0000'0000 + (5ull << 39), false);
}

TEST(GpuVm, InvalidationIsAcknowledgedPerVmid) {
  Rig rig;
  client::Session& session = rig.Open();
  const uint64_t before = rig.counters().tlb_flushes;
  ASSERT_TRUE(session.WriteRegister("regGCVM_INVALIDATE_ENG17_REQ", 0x00f80001));
  EXPECT_EQ(rig.Get("regGCVM_INVALIDATE_ENG17_ACK"), 1u);
  ASSERT_TRUE(session.WriteRegister("regMMVM_INVALIDATE_ENG3_REQ", 0x00f80004));
  EXPECT_EQ(rig.Get("regMMVM_INVALIDATE_ENG3_ACK"), 4u);
  EXPECT_EQ(rig.counters().tlb_flushes, before + 2);
}

}  // namespace
}  // namespace tg::test
