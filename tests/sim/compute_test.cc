// The command processor: PM4 control packets and AQL. Layouts: pm4 headers of gfx11, as in the
// comments.
#include <gtest/gtest.h>

#include "replay/sim/cp_queue.h"
#include "schemas/amd/ih.h"
#include "tests/sim/rig.h"

namespace tg::test {
namespace {

class Compute : public testing::Test {
 protected:
  void SetUp() override {
    session = &rig.Open();
    page = session->MapHost(0x4000).value();
  }
  void Submit(std::vector<uint32_t> packets) { ASSERT_TRUE(session->SubmitCompute(packets)); }
  uint32_t At(uint64_t offset) { return Word(*page.memory, offset); }
  // RELEASE_MEM of a 32-bit value.
  std::vector<uint32_t> Signal(uint64_t offset, uint32_t value) const {
    return {0xc0064900, 0x0070f514, 0x20000000, Low(page.va + offset), High(page.va), value, 0, 0};
  }
  static std::vector<uint32_t> Join(std::initializer_list<std::vector<uint32_t>> parts) {
    std::vector<uint32_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  Rig rig;
  client::Session* session = nullptr;
  client::Session::Shared page;
};

TEST_F(Compute, ReleaseMemWritesByDataSelect) {
  SetWord(*page.memory, 4, 0xeeeeeeee);
  Submit(Signal(0, 0x1234));
  EXPECT_EQ(At(0), 0x1234u);
  EXPECT_EQ(At(4), 0xeeeeeeeeu);
  Submit({0xc0064900, 0x514, 0x40000000, Low(page.va + 8), High(page.va), 5, 6, 0});
  EXPECT_EQ(page.memory->Load64(8), 0x0000000600000005u);
  Submit({0xc0064900, 0x514, 0x60000000, Low(page.va + 16), High(page.va), 0, 0, 0});
  EXPECT_NE(page.memory->Load64(16), 0u);
  // No data, interrupt asked for: nothing is written, and the pipe's interrupt is off.
  Submit({0xc0064900, 0x514, 0x02000000, 0, 0, 0, 0, 0});
  EXPECT_EQ(rig.counters().interrupts, 0u);
  EXPECT_EQ(rig.counters().compute_signals, 3u);
  EXPECT_EQ(session->compute_rptr(), 32u);  // dwords
}

TEST_F(Compute, WaitHoldsTheQueue) {
  Submit(Join({{0xc0053c00, 0x15, Low(page.va), High(page.va), 7, 0xffffffff, 4}, Signal(8, 1)}));
  EXPECT_EQ(At(8), 0u);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kWaiting);
  SetWord(*page.memory, 0, 7);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kIdle);
  EXPECT_EQ(At(8), 1u);
}

TEST_F(Compute, EnginesWaitForEachOther) {
  // SDMA waits for the compute queue's 2, which waits for SDMA's 1.
  ASSERT_TRUE(session->SubmitSdma(
      std::vector<uint32_t>{0x00030005, Low(page.va), High(page.va), 1,                          //
                            0xd0000008, Low(page.va), High(page.va), 2, 0xffffffff, 0x0fff0004,  //
                            0x00030005, Low(page.va), High(page.va), 3}));
  EXPECT_EQ(At(0), 1u);
  Submit(Join({{0xc0053c00, 0x15, Low(page.va), High(page.va), 1, 0xffffffff, 4}, Signal(0, 2)}));
  EXPECT_EQ(At(0), 3u);
}

TEST_F(Compute, HdpFlushIsAnsweredThroughRegisters) {
  const uint64_t before = rig.counters().hdp_flushes;
  // write-wait-write: request register 0xe26 gets the reference, done register 0xe27 must equal it
  Submit(Join({{0xc0053c00, 0x45, 0xe26, 0xe27, 0xffffffff, 0xffffffff, 4}, Signal(0, 1)}));
  EXPECT_EQ(At(0), 1u);
  EXPECT_EQ(rig.counters().hdp_flushes, before + 2);  // one before the doorbell, one by the packet
}

TEST_F(Compute, WriteAndCopyData) {
  // WRITE_DATA to memory: two dwords; to the same place: the last one stays
  Submit({0xc0043700, 0x500, Low(page.va), High(page.va), 0x11, 0x22});
  EXPECT_EQ(At(0), 0x11u);
  EXPECT_EQ(At(4), 0x22u);
  Submit({0xc0043700, 0x10500, Low(page.va), High(page.va), 0x33, 0x44});
  EXPECT_EQ(At(0), 0x44u);
  EXPECT_EQ(At(4), 0x22u);
  // COPY_DATA: memory to memory (64 bit), immediate, clock
  Submit({0xc0044000, 0x10201, Low(page.va), High(page.va), Low(page.va + 8), High(page.va)});
  EXPECT_EQ(page.memory->Load64(8), 0x0000002200000044u);
  Submit({0xc0044000, 0x205, 0x99, 0, Low(page.va + 16), High(page.va)});
  EXPECT_EQ(At(16), 0x99u);
  Submit({0xc0044000, 0x10209, 0, 0, Low(page.va + 24), High(page.va)});
  EXPECT_NE(page.memory->Load64(24), 0u);
}

TEST_F(Compute, SetRegistersAreThereToRead) {
  // COMPUTE_USER_DATA_0 (SH offset 0x240) and the next one
  Submit({0xc0027600, 0x240, 0xaaaa, 0xbbbb});
  EXPECT_EQ(rig.Get("regCOMPUTE_USER_DATA_0"), 0xaaaau);
  EXPECT_EQ(rig.Get("regCOMPUTE_USER_DATA_1"), 0xbbbbu);
  // COPY_DATA from that register (dword 0x2c00 + 0x240)
  Submit({0xc0044000, 0x200, 0x2e40, 0, Low(page.va), High(page.va)});
  EXPECT_EQ(At(0), 0xaaaau);
}

TEST_F(Compute, RegisterWritesByPacketsCannotResetTheEngineUnderItself) {
  // WRITE_DATA to GRBM_SOFT_RESET (dword 0x2008): stored, without its effect
  Submit(Join({{0xc0033700, 0x000, 0x2008, 0, 0x40001}, Signal(0, 1)}));
  EXPECT_EQ(At(0), 1u);
}

TEST_F(Compute, DispatchIsDoneWithoutRunningAnything) {
  Submit(Join({{0xc0031500, 8, 1, 1, 0x8005}, {0xc0004600, 0x407}, Signal(0, 1)}));
  EXPECT_EQ(At(0), 1u);
  EXPECT_EQ(rig.counters().compute_dispatches, 1u);
}

TEST_F(Compute, IndirectBuffersNest) {
  const std::vector<uint32_t> inner = Signal(0, 1);
  const std::vector<uint32_t> outer =
      Join({{0xc0023f00, Low(page.va + 0x1000), High(page.va), 0x800000 | 8}, Signal(4, 2)});
  page.memory->Write(0x1000, {reinterpret_cast<const uint8_t*>(inner.data()), inner.size() * 4});
  page.memory->Write(0x2000, {reinterpret_cast<const uint8_t*>(outer.data()), outer.size() * 4});
  Submit(Join({{0xc0023f00, Low(page.va + 0x2000), High(page.va), 0x800000 | 12}, Signal(8, 3)}));
  EXPECT_EQ(At(0), 1u);
  EXPECT_EQ(At(4), 2u);
  EXPECT_EQ(At(8), 3u);
}

TEST_F(Compute, BufferThatCallsItselfEndsInAnError) {
  const uint32_t loop[] = {0xc0023f00, Low(page.va + 0x1000), High(page.va), 0x800000 | 4};
  page.memory->Write(0x1000, {reinterpret_cast<const uint8_t*>(loop), sizeof loop});
  Submit({0xc0023f00, Low(page.va + 0x1000), High(page.va), 0x800000 | 4});
  EXPECT_EQ(rig.counters().compute_bad_packets, 1u);
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kStuck);
}

TEST_F(Compute, BufferThatChainsToItselfNeverHoldsTheServer) {
  // chain bit 20: goes on there instead of coming back
  const uint32_t loop[] = {0xc0023f00, Low(page.va + 0x1000), High(page.va), 0x900000 | 4};
  page.memory->Write(0x1000, {reinterpret_cast<const uint8_t*>(loop), sizeof loop});
  Submit({0xc0023f00, Low(page.va + 0x1000), High(page.va), 0x800000 | 4});
  for (int i = 0; i < 3; i++) EXPECT_EQ(rig.gpu->Run(), sim::Work::kRunnable);
}

TEST_F(Compute, PredicatedExecution) {
  // mask without XCC 0: eight dwords are skipped; with it: executed
  Submit(Join({{0xc0002300, 2u << 24 | 8}, Signal(0, 1), Signal(4, 2)}));
  EXPECT_EQ(At(0), 0u);
  EXPECT_EQ(At(4), 2u);
  Submit(Join({{0xc0002300, 1u << 24 | 8}, Signal(0, 1)}));
  EXPECT_EQ(At(0), 1u);
}

TEST_F(Compute, BadOpcodeRaisesAnInterruptAndHangs) {
  Submit(Join({{0xc0000000 | 0xfe00, 0}, Signal(0, 1)}));
  EXPECT_EQ(At(0), 0u);
  std::array<uint32_t, 8> words;
  rig.gpu->BarRead(0, 0x3000, {reinterpret_cast<uint8_t*>(words.data()), 32});
  const amd::IhEntry entry = amd::DecodeIhEntry(words);
  EXPECT_EQ(entry.client, 20);   // GRBM_CP
  EXPECT_EQ(entry.source, 183);  // CP_BAD_OPCODE
  EXPECT_EQ(entry.ring, 0x04);   // me 1, pipe 0, queue 0
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kStuck);
}

TEST_F(Compute, RingWrapsInTheMiddleOfAPacket) {
  // NOPs of 0x3fff dwords up to three dwords before the ring's end (4 Mi dwords)
  std::vector<uint32_t> nop(0x3fff);
  nop[0] = 0xc0001000 | (0x3fffu - 2) << 16;
  const uint64_t ring = 4 << 20;
  uint64_t put = 0;
  for (; put + nop.size() + 3 <= ring; put += nop.size()) ASSERT_TRUE(session->SubmitCompute(nop));
  std::vector<uint32_t> rest(ring - 3 - put);
  rest[0] = 0xc0001000 | static_cast<uint32_t>(rest.size() - 2) << 16;
  ASSERT_TRUE(session->SubmitCompute(rest));
  Submit(Signal(0, 42));
  while (rig.gpu->Run() == sim::Work::kRunnable) {
  }
  EXPECT_EQ(At(0), 42u);
  EXPECT_EQ(session->compute_rptr(), ring + 5);
}

TEST_F(Compute, DequeueStopsTheQueue) {
  Submit({0xc0053c00, 0x15, Low(page.va), High(page.va), 7, 0xffffffff, 4});
  ASSERT_TRUE(session->WriteRegister("regGRBM_GFX_CNTL", 4));  // me 1
  EXPECT_EQ(rig.Get("regCP_HQD_ACTIVE"), 1u);
  ASSERT_TRUE(session->WriteRegister("regCP_HQD_DEQUEUE_REQUEST", 2));
  EXPECT_EQ(rig.Get("regCP_HQD_ACTIVE"), 0u);
  EXPECT_FALSE(rig.gpu->pending());
  // Another queue's registers are others.
  ASSERT_TRUE(session->WriteRegister("regGRBM_GFX_CNTL", 4 | 1 << 8));
  EXPECT_EQ(rig.Get("regCP_HQD_PQ_BASE"), 0u);
}

TEST_F(Compute, AqlDispatchAndVendorPackets) {
  sim::CpQueue queue(rig.gpu->card(), rig.gpu->vm(), rig.gpu->ih());
  sim::CpQueueSetup setup;
  setup.aql = true;
  setup.base = page.va;
  setup.size = 0x1000;
  setup.report = page.va + 0x3000;
  queue.Activate(setup);

  // Slot 0: PM4 in an indirect buffer at +0x2000; slot 1: dispatch with a completion signal at
  // +0x2800.
  const std::vector<uint32_t> body = Signal(0x2100, 9);
  page.memory->Write(0x2000, {reinterpret_cast<const uint8_t*>(body.data()), body.size() * 4});
  page.memory->Store64(0x2808, 3);
  std::vector<uint32_t> slots(32);
  slots[0] = 0x1500 | 1 << 16;
  slots[1] = 0xc0023f00;
  slots[2] = Low(page.va + 0x2000);
  slots[3] = High(page.va);
  slots[4] = 0x800000 | 8;
  slots[5] = 10;
  slots[16] = 0x1502 | 3 << 16;
  slots[30] = Low(page.va + 0x2800);
  slots[31] = High(page.va);
  page.memory->Write(0, {reinterpret_cast<const uint8_t*>(slots.data()), slots.size() * 4});

  queue.Doorbell(1);  // index of the last packet
  sim::Budget budget;
  EXPECT_EQ(queue.Run(budget), sim::Work::kIdle);
  EXPECT_EQ(At(0x2100), 9u);
  EXPECT_EQ(page.memory->Load64(0x2808), 2u);
  EXPECT_EQ(page.memory->Load64(0x3000), 2u);  // packets
  EXPECT_EQ(rig.counters().compute_dispatches, 1u);

  // Slot 2 was never written: an all-zero slot is no packet.
  queue.Doorbell(2);
  EXPECT_EQ(queue.Run(budget), sim::Work::kStuck);
}

TEST_F(Compute, AqlBarrierWaitsForItsSignals) {
  sim::CpQueue queue(rig.gpu->card(), rig.gpu->vm(), rig.gpu->ih());
  sim::CpQueueSetup setup;
  setup.aql = true;
  setup.base = page.va;
  setup.size = 0x1000;
  queue.Activate(setup);
  std::vector<uint32_t> slot(16);
  slot[0] = 0x1503;  // barrier-and
  slot[2] = Low(page.va + 0x2000);
  slot[3] = High(page.va);
  page.memory->Write(0, {reinterpret_cast<const uint8_t*>(slot.data()), slot.size() * 4});
  page.memory->Store64(0x2008, 1);
  queue.Doorbell(0);
  sim::Budget budget;
  EXPECT_EQ(queue.Run(budget), sim::Work::kWaiting);
  page.memory->Store64(0x2008, 0);
  EXPECT_EQ(queue.Run(budget), sim::Work::kIdle);
}

}  // namespace
}  // namespace tg::test
