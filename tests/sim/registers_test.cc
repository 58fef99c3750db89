// Windows, narrow accesses, and the account of what is not modelled.
#include <gtest/gtest.h>

#include "tests/sim/rig.h"

namespace tg::test {
namespace {

uint32_t Read(sim::Gpu& gpu, uint64_t byte) {
  uint8_t word[4];
  gpu.BarRead(5, byte, word);
  return LoadLe<uint32_t>(word);
}
void Write(sim::Gpu& gpu, uint64_t byte, uint32_t value) {
  uint8_t word[4];
  StoreLe(word, value);
  gpu.BarWrite(5, byte, word);
}

TEST(Registers, MemorySizeStandsAtItsFixedPlace) {
  EXPECT_EQ(Read(*Rig("navi31").gpu, 0x378c), 24560u);
  EXPECT_EQ(Read(*Rig("navi48").gpu, 0x378c), 16304u);
}

TEST(Registers, VramWindowReachesAllOfVram) {
  Rig rig("navi31", sim::kSmallBar0);
  // The signature of the discovery table, 64 KiB below the end.
  const uint64_t at = (24560ull << 20) - 0x10000;
  Write(*rig.gpu, 24, static_cast<uint32_t>(at >> 31));
  Write(*rig.gpu, 0, static_cast<uint32_t>(at & 0x7fffffff) | 0x80000000);
  EXPECT_EQ(Read(*rig.gpu, 4), 0x28211407u);
  // Past the end: all ones. Writes go there and come back.
  Write(*rig.gpu, 24, 0x1ff);
  EXPECT_EQ(Read(*rig.gpu, 4), 0xffffffffu);
  Write(*rig.gpu, 24, 0);
  Write(*rig.gpu, 0, 0x80001000);
  Write(*rig.gpu, 4, 0x12345678);
  uint8_t word[4];
  rig.gpu->BarRead(0, 0x1000, word);
  EXPECT_EQ(LoadLe<uint32_t>(word), 0x12345678u);
}

TEST(Registers, RsmuWindowReachesBeyondTheBar) {
  Rig rig;
  // RCC_DEV0_EPF2_STRAP2: (0x04040000 + 53506) dwords, far behind BAR 5's 1 MiB
  const uint32_t strap = (0x04040000 + 53506) * 4;
  Write(*rig.gpu, 0x14 * 4, strap);
  Write(*rig.gpu, 0x15 * 4, 0x80);
  EXPECT_EQ(Read(*rig.gpu, 0x15 * 4), 0x80u);
  // Two windows aimed at each other end.
  Write(*rig.gpu, 0x14 * 4, 0x15 * 4);
  EXPECT_EQ(Read(*rig.gpu, 0x15 * 4), 0u);
  Write(*rig.gpu, 0, 0x15 * 4);
  EXPECT_EQ(Read(*rig.gpu, 4), 0u);
}

TEST(Registers, UnknownOnesReadZeroAndAreCounted) {
  Rig rig;
  // 0xf000c: no name; SCRATCH_REG7 (byte 0x3011c): modelled
  EXPECT_EQ(Read(*rig.gpu, 0xf000c), 0u);
  EXPECT_EQ(Read(*rig.gpu, 0xf000c), 0u);
  Write(*rig.gpu, 0xf000c, 5);
  EXPECT_EQ(Read(*rig.gpu, 0xf000c), 0u);
  Read(*rig.gpu, 0x3011c);
  const auto gaps = rig.gpu->card().regs.Gaps();
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].dword, 0xf000cu / 4);
  EXPECT_EQ(gaps[0].name, "");
  EXPECT_EQ(gaps[0].reads, 3u);
  EXPECT_EQ(gaps[0].writes, 1u);
}

TEST(Registers, TheAccountIsBounded) {
  Rig rig;
  for (uint32_t i = 0; i < 100'000; i++) {
    Write(*rig.gpu, 0x14 * 4, 0x80000000 + i * 4);
    Read(*rig.gpu, 0x15 * 4);
  }
  EXPECT_LE(rig.gpu->card().regs.Gaps().size(), 4096u);
  EXPECT_GT(rig.gpu->card().regs.gaps_not_listed(), 90'000u);
}

TEST(Registers, NarrowAccessesKeepTheOtherBytes) {
  Rig rig;
  Write(*rig.gpu, 0x3011c, 0x11223344);
  const uint8_t byte[1] = {0xaa};
  rig.gpu->BarWrite(5, 0x3011d, byte);
  EXPECT_EQ(Read(*rig.gpu, 0x3011c), 0x1122aa44u);
  uint8_t two[2];
  rig.gpu->BarRead(5, 0x3011e, two);
  EXPECT_EQ(LoadLe<uint16_t>(two), 0x1122);
  uint8_t eight[8];
  rig.gpu->BarRead(5, 0x30118, eight);
  EXPECT_EQ(LoadLe<uint64_t>(eight), 0x1122aa4400000000u);
}

TEST(Registers, RlcSafeModeIsAcknowledged) {
  Rig rig;
  client::Session& session = rig.Open();
  ASSERT_TRUE(session.WriteRegister("regRLC_SAFE_MODE", 3));
  EXPECT_EQ(rig.Get("regRLC_SAFE_MODE") & 1, 0u);
}

TEST(Memory, WithoutDecodingBarsAreAllOnes) {
  Rig rig;
  rig.gpu->CfgWrite(4, 2, 0);
  EXPECT_EQ(Read(*rig.gpu, 0x378c), 0xffffffffu);
  Write(*rig.gpu, 0x3011c, 7);
  rig.gpu->CfgWrite(4, 2, 2);
  EXPECT_EQ(Read(*rig.gpu, 0x3011c), 0u);
  EXPECT_EQ(rig.counters().mmio_dropped, 2u);
}

TEST(Memory, BarMayBeLargerThanVram) {
  Rig rig;
  ASSERT_EQ(rig.gpu->BarSize(0), 32ull << 30);
  std::vector<uint8_t> bytes(32, 1);
  // 16 bytes of VRAM, 16 behind it
  rig.gpu->BarRead(0, (24560ull << 20) - 16, bytes);
  EXPECT_EQ(LoadLe<uint64_t>(&bytes[8]), 0u);
  EXPECT_EQ(LoadLe<uint64_t>(&bytes[16]), UINT64_MAX);
  rig.gpu->BarWrite(0, 30ull << 30, bytes);
}

}  // namespace
}  // namespace tg::test
