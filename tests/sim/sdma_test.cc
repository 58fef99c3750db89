// The SDMA engine, packet by packet. Layouts: sdma-packet headers 6.0, as in the comments.
#include <gtest/gtest.h>

#include <thread>

#include "schemas/amd/ih.h"
#include "tests/sim/rig.h"

namespace tg::test {
namespace {

class Sdma : public testing::Test {
 protected:
  void SetUp() override {
    session = &rig.Open();
    page = session->MapHost(0x4000).value();
  }
  void Submit(std::vector<uint32_t> packets) { ASSERT_TRUE(session->SubmitSdma(packets)); }
  uint32_t At(uint64_t offset) { return Word(*page.memory, offset); }
  // Entries of interrupt ring 0 so far.
  std::vector<amd::IhEntry> Interrupts() {
    std::vector<amd::IhEntry> entries;
    const uint32_t end = rig.Get("regIH_RB_WPTR") >> 2 & 0xffff;
    for (uint32_t at = 0; at < end; at += 8) {
      std::array<uint32_t, 8> words;
      rig.gpu->BarRead(0, 0x3000 + at * 4, {reinterpret_cast<uint8_t*>(words.data()), 32});
      entries.push_back(amd::DecodeIhEntry(words));
    }
    return entries;
  }

  Rig rig;
  client::Session* session = nullptr;
  client::Session::Shared page;
};

TEST_F(Sdma, FenceWritesItsValueAndThePointerMoves) {
  EXPECT_EQ(session->sdma_rptr(), 0u);
  Submit({0x00030005, Low(page.va + 8), High(page.va), 0xabcd});
  EXPECT_EQ(At(8), 0xabcdu);
  EXPECT_EQ(At(12), 0u);
  EXPECT_EQ(session->sdma_rptr(), 16u);
  EXPECT_EQ(rig.Get("regSDMA0_QUEUE0_RB_RPTR"), 16u);
}

TEST_F(Sdma, PollHoldsUntilMemoryIsThere) {
  // memory >= 3, then a fence
  Submit({0xd0000008, Low(page.va), High(page.va), 3, 0xffffffff, 0x0fff0004, 0x00030005,
          Low(page.va + 16), High(page.va), 1});
  EXPECT_EQ(At(16), 0u);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kWaiting);
  EXPECT_TRUE(rig.gpu->pending());
  EXPECT_EQ(session->sdma_rptr(), 0u);
  SetWord(*page.memory, 0, 2);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kWaiting);
  SetWord(*page.memory, 0, 4);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kIdle);
  EXPECT_EQ(At(16), 1u);
  EXPECT_FALSE(rig.gpu->pending());
}

TEST_F(Sdma, PollComparesAsThePacketSays) {
  struct Case {
    uint32_t function, memory, reference, mask;
    bool holds;
  };
  const Case cases[] = {
      {0, 0, 9, ~0u, true},          {1, 4, 5, ~0u, true},  {1, 5, 5, ~0u, false},
      {2, 5, 5, ~0u, true},          {3, 5, 5, ~0u, true},  {3, 0x105, 5, 0xff, true},
      {4, 5, 5, ~0u, false},         {5, 5, 6, ~0u, false}, {6, 6, 5, ~0u, true},
      {5, 0xffffffff, 1, ~0u, true},
  };
  uint32_t number = 0;
  for (const Case& one : cases) {
    number++;
    SetWord(*page.memory, 0, one.memory);
    Submit({0x80000008 | one.function << 28, Low(page.va), High(page.va), one.reference, one.mask,
            0x0fff0004, 0x00030005, Low(page.va + 16), High(page.va), number});
    EXPECT_EQ(At(16) == number, one.holds) << number;
    if (one.holds) continue;
    SetWord(*page.memory, 0, one.function == 1 ? 0 : one.function == 4 ? 1 : 100);
    rig.gpu->Run();
    EXPECT_EQ(At(16), number);
  }
}

TEST_F(Sdma, RunsOnlyUpToTheDoorbell) {
  const uint32_t nop[] = {0};
  ASSERT_TRUE(session->SubmitSdma(nop));
  EXPECT_EQ(session->sdma_rptr(), 4u);
  // The rest of the ring is zero dwords, which are NOPs: none of them is executed.
  rig.gpu->Run();
  EXPECT_EQ(session->sdma_rptr(), 4u);
}

TEST_F(Sdma, PacketWhoseEndIsNotAnnouncedWaits) {
  Submit({0x00030005, Low(page.va), High(page.va)});
  EXPECT_EQ(session->sdma_rptr(), 0u);
  Submit({77});
  EXPECT_EQ(At(0), 77u);
  EXPECT_EQ(session->sdma_rptr(), 16u);
}

TEST_F(Sdma, WritesOfOneTwoAndManyDwords) {
  Submit({0x2, Low(page.va), High(page.va), 0, 0x11});
  Submit({0x2, Low(page.va + 8), High(page.va), 1, 0x22, 0x33});
  Submit({0x2, Low(page.va + 16), High(page.va), 2, 0x44, 0x55, 0x66});
  const uint32_t expected[] = {0x11, 0, 0x22, 0x33, 0x44, 0x55, 0x66, 0};
  for (size_t i = 0; i < std::size(expected); i++) EXPECT_EQ(At(4 * i), expected[i]) << i;
}

TEST_F(Sdma, TimestampIsTheHundredMegahertzClock) {
  Submit({0x0000020d, Low(page.va), High(page.va)});
  const uint64_t first = page.memory->Load64(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Submit({0x0000020d, Low(page.va), High(page.va)});
  const uint64_t ticks = page.memory->Load64(0) - first;
  EXPECT_GE(ticks, 2'000'000u);
  EXPECT_LT(ticks, 1'000'000'000u);
}

TEST_F(Sdma, ConstantFill) {
  Submit({0x8000000b, Low(page.va + 4), High(page.va), 0x04030201, 9});  // 10 bytes
  EXPECT_EQ(At(0), 0u);
  EXPECT_EQ(At(4), 0x04030201u);
  EXPECT_EQ(At(8), 0x04030201u);
  EXPECT_EQ(At(12), 0x00000201u);
}

TEST_F(Sdma, IndirectBufferThenBackInTheRing) {
  const uint32_t buffer[] = {0x00030005, Low(page.va), High(page.va), 1, 0, 0, 0, 0};
  page.memory->Write(0x1000, {reinterpret_cast<const uint8_t*>(buffer), sizeof buffer});
  Submit({0x4, Low(page.va + 0x1000), High(page.va), 8, 0, 0, 0x00030005, Low(page.va + 4),
          High(page.va), 2});
  EXPECT_EQ(At(0), 1u);
  EXPECT_EQ(At(4), 2u);
  EXPECT_EQ(session->sdma_rptr(), 40u);
}

TEST_F(Sdma, ConditionalExecutionSkips) {
  // Memory (0) is not 7: the four dwords of the first fence are skipped.
  Submit({0x9, Low(page.va), High(page.va), 7, 4, 0x00030005, Low(page.va + 4), High(page.va), 1,
          0x00030005, Low(page.va + 8), High(page.va), 2});
  EXPECT_EQ(At(4), 0u);
  EXPECT_EQ(At(8), 2u);
}

TEST_F(Sdma, RingWrapsWithTheDriversPadding) {
  // NOP packets of 16384 dwords each: 255 of them leave 64 KiB of the 16 MiB ring.
  std::vector<uint32_t> nop(16384);
  nop[0] = 16383u << 16;
  for (int i = 0; i < 255; i++) ASSERT_TRUE(session->SubmitSdma(nop));
  EXPECT_EQ(session->sdma_rptr(), (16u << 20) - 65536);
  Submit({0x00030005, Low(page.va), High(page.va), 1});
  // This one would touch the end: the rest is padded, and it stands at the ring's start.
  ASSERT_TRUE(session->SubmitSdma(nop));
  Submit({0x00030005, Low(page.va + 4), High(page.va), 2});
  while (rig.gpu->Run() == sim::Work::kRunnable) {  // the padding is thousands of packets
  }
  EXPECT_EQ(At(0), 1u);
  EXPECT_EQ(At(4), 2u);
  EXPECT_EQ(session->sdma_rptr(), (16u << 20) + 65536 + 16);
}

TEST_F(Sdma, TrapRaisesAnInterruptWithItsContext) {
  Submit({0x6, 0x0234567});
  const auto entries = Interrupts();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].client, 10);  // GFX
  EXPECT_EQ(entries[0].source, 49);  // SDMA_TRAP
  EXPECT_EQ(entries[0].context[0], 0x0234567u);
}

TEST_F(Sdma, UnknownPacketFreezesTheEngineUntilItsReset) {
  Submit({0x000000fe});
  Submit({0x00030005, Low(page.va), High(page.va), 1});
  EXPECT_EQ(At(0), 0u);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kStuck);
  EXPECT_FALSE(rig.gpu->pending());
  EXPECT_EQ(rig.counters().sdma_bad_packets, 1u);
  const auto entries = Interrupts();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].source, 63);  // SDMA_FROZEN
  // Setting the queue up again does not help; soft_reset_sdma0 does.
  const uint32_t control = rig.Get("regSDMA0_QUEUE0_RB_CNTL");
  ASSERT_TRUE(session->WriteRegister("regSDMA0_QUEUE0_RB_CNTL", control & ~1u));
  ASSERT_TRUE(session->WriteRegister("regSDMA0_QUEUE0_RB_CNTL", control));
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kStuck);
  ASSERT_TRUE(session->WriteRegister("regGRBM_SOFT_RESET", 0x800000));
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kIdle);
}

TEST_F(Sdma, CopyFromUnmappedMemoryFaults) {
  const uint64_t nowhere = 0x2000'4000'0000;
  Submit({0x1, 0xfff, 0, Low(nowhere), High(nowhere), Low(page.va), High(page.va), 0x00030005,
          Low(page.va + 0x2000), High(page.va), 1});
  EXPECT_EQ(At(0x2000), 1u);  // the queue goes on: the dummy page was copied
  // permission bits: not valid, read; client 13 SDMA0; read. The PDE is missing: walker error.
  const uint32_t status = rig.Get("regGCVM_L2_PROTECTION_FAULT_STATUS");
  EXPECT_EQ(status >> 4 & 0xf, 3u);
  EXPECT_EQ(status >> 9 & 0x1ff, 13u);
  EXPECT_EQ(status >> 18 & 1, 0u);
  EXPECT_NE(status >> 1 & 7, 0u);
  EXPECT_EQ(rig.Get("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32"), Low(nowhere >> 12));
  EXPECT_EQ(rig.Get("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32"), High(nowhere >> 12));
  const auto entries = Interrupts();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].client, 10);
  EXPECT_EQ(entries[0].source, 0);  // UTCL2_FAULT
  EXPECT_EQ(entries[0].context[0], Low(nowhere >> 12));
  EXPECT_EQ(entries[0].context[1] & 0xf, High(nowhere >> 12));
  // A second fault leaves the first one's address and sets more_faults; clearing clears.
  Submit({0x1, 0xfff, 0, Low(page.va), High(page.va), Low(nowhere + 0x5000), High(nowhere)});
  EXPECT_EQ(rig.Get("regGCVM_L2_PROTECTION_FAULT_STATUS"), status | 1);
  EXPECT_EQ(rig.Get("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32"), Low(nowhere >> 12));
  ASSERT_TRUE(session->WriteRegister("regGCVM_L2_PROTECTION_FAULT_CNTL", 1));
  EXPECT_EQ(rig.Get("regGCVM_L2_PROTECTION_FAULT_STATUS"), 0u);
  EXPECT_EQ(rig.counters().page_faults, 2u);
}

TEST_F(Sdma, UnmappedBufferFaultsFromThenOn) {
  const auto buffer = session->Allocate(0x3000).value();
  Submit({0x1, 0xfff, 0, Low(page.va), High(page.va), Low(buffer.va), High(buffer.va)});
  EXPECT_EQ(rig.counters().page_faults, 0u);
  ASSERT_TRUE(session->Unmap(buffer));
  Submit({0x1, 0xfff, 0, Low(page.va), High(page.va), Low(buffer.va), High(buffer.va)});
  EXPECT_EQ(rig.counters().page_faults, 1u);
  // Not valid and a write: permission bits 1 | 4.
  const uint32_t status = rig.Get("regGCVM_L2_PROTECTION_FAULT_STATUS");
  EXPECT_EQ(status >> 4 & 0xf, 5u);
  EXPECT_EQ(status >> 18 & 1, 1u);
  EXPECT_EQ(status >> 1 & 7, 0u);
}

TEST_F(Sdma, WithoutBusMasteringHostMemoryIsOutOfReach) {
  const auto buffer = session->Allocate(0x1000).value();
  SetWord(*page.memory, 0x1000, 0x5555);
  rig.gpu->CfgWrite(4, 2, 0x0002);
  Submit({0x1, 0xfff, 0, Low(page.va + 0x1000), High(page.va), Low(buffer.va), High(buffer.va)});
  EXPECT_GT(rig.counters().dma_blocked, 0u);
  // Not even the ring can be read: nothing was executed that it holds.
  rig.gpu->CfgWrite(4, 2, 0x0006);
  EXPECT_EQ(rig.counters().sdma_copies, 0u);
}

TEST_F(Sdma, LargeCopiesGoInSlices) {
  const size_t size = 40 << 20;
  const auto from = session->Allocate(size).value();
  const auto to = session->Allocate(size).value();
  const std::vector<uint8_t> data = Pattern(size, 11);
  ASSERT_TRUE(session->CopyIn(from, data));
  ASSERT_TRUE(session->Synchronize());
  Submit({0x1, static_cast<uint32_t>(size - 1), 0, Low(from.va), High(from.va), Low(to.va),
          High(to.va), 0x00030005, Low(page.va), High(page.va), 1});
  EXPECT_EQ(At(0), 0u);  // more than one budget
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kRunnable);
  while (rig.gpu->Run() == sim::Work::kRunnable) {
  }
  EXPECT_EQ(At(0), 1u);
  std::vector<uint8_t> back(size);
  ASSERT_TRUE(session->CopyOut(to, back));
  EXPECT_TRUE(back == data);
}

TEST_F(Sdma, InterruptRingOverflowIsSaid) {
  // Ring of 8192 entries; tinygrad's read pointer stays 0.
  std::vector<uint32_t> traps;
  for (int i = 0; i < 8192; i++) traps.insert(traps.end(), {0x6, static_cast<uint32_t>(i)});
  Submit(traps);
  while (rig.gpu->Run() == sim::Work::kRunnable) {
  }
  EXPECT_EQ(rig.counters().interrupts, 8192u);
  EXPECT_EQ(rig.Get("regIH_RB_WPTR") & 1, 1u);
  ASSERT_TRUE(session->WriteRegister("regIH_RB_CNTL", 0x80000000));
  EXPECT_EQ(rig.Get("regIH_RB_WPTR") & 1, 0u);
}

}  // namespace
}  // namespace tg::test
