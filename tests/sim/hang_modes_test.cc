// Each way to go wrong, as the client meets it.
#include <gtest/gtest.h>

#include "tests/sim/rig.h"

namespace tg::test {
namespace {

client::SessionOptions Impatient() {
  client::SessionOptions options;
  options.wait_timeout = std::chrono::milliseconds(300);
  return options;
}

// One copy up and its wait: an error, or nothing.
std::string CopyAndWait(client::Session& session) {
  const auto buffer = session.Allocate(4096).value();
  const std::vector<uint8_t> data = Pattern(4096, 1);
  if (auto done = session.CopyIn(buffer, data); !done) return done.error().message;
  if (auto done = session.Synchronize(); !done) return done.error().message;
  return "";
}

TEST(HangModes, SdmaStall) {
  Rig rig;
  rig.Hang("sdma-stall:after=2");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "");
  EXPECT_EQ(CopyAndWait(session), "");
  EXPECT_EQ(CopyAndWait(session),
            "Wait timeout: 300 ms! (the signal is not set to 3, but 2); device hang detected");
  // The poll before the copy is done, the copy is not: 6 dwords into the third submission.
  EXPECT_EQ(session.sdma_rptr(), 2u * 0x44 + 0x18);
  EXPECT_FALSE(rig.gpu->pending());
}

TEST(HangModes, SdmaPollNever) {
  Rig rig;
  rig.Hang("sdma-poll-never:after=1");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "");
  EXPECT_NE(CopyAndWait(session), "");
  EXPECT_EQ(session.sdma_rptr(), 0x44u);  // at the poll, although memory holds what it wants
}

TEST(HangModes, ComputeStallIsCuredByRecovery) {
  Rig rig;
  rig.Hang("compute-stall:after=1:count=1");
  client::Session& session = rig.Open(Impatient());
  ASSERT_TRUE(session.Barrier());
  const auto hung = session.Barrier();
  ASSERT_FALSE(hung);
  EXPECT_NE(hung.error().message.find("device hang detected"), std::string::npos);
  EXPECT_TRUE(session.Barrier());
}

TEST(HangModes, SlowKernel) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("slow-kernel:150000:count=1");
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(session.Barrier());
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(150));
  EXPECT_TRUE(session.Barrier());
  EXPECT_EQ(rig.counters().compute_signals, 2u);
}

TEST(HangModes, PageFaultOfACopy) {
  Rig rig;
  rig.Hang("page-fault:count=1");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "");  // it goes unnoticed
  EXPECT_NE(rig.Get("regGCVM_L2_PROTECTION_FAULT_STATUS"), 0u);
  EXPECT_EQ(rig.counters().interrupts, 1u);
  ASSERT_TRUE(session.Close());
}

TEST(HangModes, PageFaultOfOneAddressStopsTheEngine) {
  Rig rig;
  client::Session& session = rig.Open(Impatient());
  const auto buffer = session.Allocate(8192).value();
  rig.Hang("page-fault:" + std::to_string(buffer.va + 4096) + ":stop");
  const std::vector<uint8_t> data = Pattern(8192, 1);
  ASSERT_TRUE(session.CopyIn(buffer, std::span(data).first(4096)));
  ASSERT_TRUE(session.Synchronize());
  ASSERT_TRUE(session.CopyIn(buffer, data));
  const auto hung = session.Synchronize();
  ASSERT_FALSE(hung);
  // The interrupt is read after 200 ms: error state before the timeout.
  EXPECT_EQ(hung.error().message, "Device is in error state; device hang detected");
}

TEST(HangModes, FenceLost) {
  Rig rig;
  rig.Hang("fence-lost:after=1:count=1");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "");
  EXPECT_NE(CopyAndWait(session), "");
  EXPECT_EQ(session.sdma_rptr(), 2u * 0x44);  // everything was executed
  EXPECT_EQ(rig.counters().sdma_fences, 2u);
}

TEST(HangModes, DoorbellLost) {
  Rig rig;
  rig.Hang("doorbell-lost:after=1:count=1");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "");
  EXPECT_NE(CopyAndWait(session), "");
  EXPECT_EQ(session.sdma_rptr(), 0x44u);
}

// The client reads an interrupt of the ring, or a register, after 200 ms: error state before the
// timeout.
std::string BarrierUntilError(const char* hang) {
  Rig rig;
  rig.Hang(hang);
  client::Session& session = rig.Open(Impatient());
  EXPECT_TRUE(session.Barrier());
  const auto hung = session.Barrier();
  EXPECT_EQ(rig.counters().compute_signals, 1u);
  return hung ? "" : hung.error().message;
}

TEST(HangModes, ShaderErrorAndBadPacketRaiseInterrupts) {
  const std::string error = "Device is in error state; device hang detected";
  for (const char* hang : {"shader-error:after=1", "shader-error:memviol:after=1",
                           "bad-packet:after=1", "bad-packet:priv_reg:after=1"})
    EXPECT_EQ(BarrierUntilError(hang), error) << hang;
}

// Dwords 0, 4 and 5 of the newest entry of the interrupt ring.
std::vector<uint32_t> NewestInterrupt(Rig& rig, const char* hang) {
  rig.Hang(hang);
  client::Session& session = rig.Open(Impatient());
  EXPECT_FALSE(session.Barrier());
  const uint64_t ring =
      (uint64_t{rig.Get("regIH_RB_BASE_HI") & 0xff} << 32 | rig.Get("regIH_RB_BASE")) << 8;
  const uint64_t at = ring - sim::kFbBase + (rig.Get("regIH_RB_WPTR") & 0x3fffc) - 32;
  std::vector<uint32_t> entry(8);
  rig.gpu->BarRead(0, at, {reinterpret_cast<uint8_t*>(entry.data()), 32});
  return {entry[0] & 0xffff, entry[4], entry[5]};
}

// Client (GFX 10, GRBM_CP 20), source, and for SQ the error type (context 0 [24:21]) with encoding
// 2 (context 1 [7:6]): amd-structs, interrupt ring.
TEST(HangModes, InterruptEntries) {
  using Entry = std::vector<uint32_t>;
  const std::pair<const char*, Entry> cases[] = {
      {"shader-error", {10 | 239 << 8, 1 << 21, 2 << 6}},
      {"shader-error:edc_fed", {10 | 239 << 8, 3 << 21, 2 << 6}},
      {"bad-packet", {20 | 183 << 8, 0, 0}},
      {"bad-packet:reserved", {20 | 180 << 8, 0, 0}},
      {"bad-packet:priv_reg", {20 | 184 << 8, 0, 0}},
      {"bad-packet:priv_instr", {20 | 185 << 8, 0, 0}},
  };
  for (const auto& [hang, entry] : cases) {
    Rig rig;
    EXPECT_EQ(NewestInterrupt(rig, hang), entry) << hang;
  }
}

TEST(HangModes, SdmaWatchdog) {
  Rig rig;
  rig.Hang("sdma-stall:watchdog");
  client::Session& session = rig.Open(Impatient());
  EXPECT_EQ(CopyAndWait(session), "Device is in error state; device hang detected");
  EXPECT_EQ(rig.counters().interrupts, 1u);
}

TEST(HangModes, TlbStuck) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("tlb-stuck:after=1:count=1");
  rig.Hang("tlb-stuck:semaphore:after=2");
  for (const uint32_t acknowledged : {1u, 0u, 1u}) {
    ASSERT_TRUE(session.WriteRegister("regGCVM_INVALIDATE_ENG17_REQ", 0xf80001));
    EXPECT_EQ(rig.Get("regGCVM_INVALIDATE_ENG17_ACK"), acknowledged);
  }
  for (const uint32_t mine : {1u, 1u, 0u, 0u})
    EXPECT_EQ(rig.Get("regMMVM_INVALIDATE_ENG17_SEM"), mine);
}

TEST(HangModes, MecStuckUntilItsReset) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("mec-stuck");
  ASSERT_TRUE(session.WriteRegister("regGRBM_GFX_CNTL", 1 << 2));  // me 1
  EXPECT_EQ(rig.Get("regCP_HQD_ACTIVE"), 1u);
  ASSERT_TRUE(session.WriteRegister("regCP_HQD_DEQUEUE_REQUEST", 2));
  EXPECT_EQ(rig.Get("regCP_HQD_ACTIVE"), 1u);
  ASSERT_TRUE(session.WriteRegister("regGRBM_SOFT_RESET", 1));  // soft_reset_cp
  EXPECT_EQ(rig.Get("regCP_HQD_ACTIVE"), 0u);
}

TEST(HangModes, RlcStuck) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("rlc-stuck:after=1");
  for (const uint32_t waiting : {0u, 1u}) {
    ASSERT_TRUE(session.WriteRegister("regRLC_SAFE_MODE", 3));
    EXPECT_EQ(rig.Get("regRLC_SAFE_MODE") & 1, waiting);
  }
}

TEST(HangModes, RasStopsTheEnginesUntilAReset) {
  for (const bool athub : {false, true}) {
    Rig rig;
    client::Session& session = rig.Open(Impatient());
    rig.Hang(athub ? "ras:athub:after=1:count=1" : "ras:after=1:count=1");
    EXPECT_EQ(CopyAndWait(session), "");
    EXPECT_NE(CopyAndWait(session), "");
    EXPECT_EQ(session.sdma_rptr(), 0x44u);
    rig.gpu->Reset();
    client::Session& again = rig.Open(Impatient());
    EXPECT_EQ(CopyAndWait(again), "");
  }
}

TEST(HangModes, RasStatusIsClearedByItsClearBit) {
  Rig rig;
  client::Session& session = rig.Open(Impatient());
  const auto* reg = rig.gpu->card().regs.Def("regBIF_BX0_BIF_DOORBELL_INT_CNTL");
  ASSERT_NE(reg, nullptr);
  const auto bit = [reg](const char* field) {
    return static_cast<uint32_t>(amd::SetField(*reg, field, 1));
  };
  rig.Hang("ras");
  EXPECT_NE(CopyAndWait(session), "");
  EXPECT_EQ(rig.Get("regBIF_BX0_BIF_DOORBELL_INT_CNTL"), bit("ras_cntlr_interrupt_status"));
  ASSERT_TRUE(
      session.WriteRegister("regBIF_BX0_BIF_DOORBELL_INT_CNTL", bit("ras_cntlr_interrupt_clear")));
  EXPECT_EQ(rig.Get("regBIF_BX0_BIF_DOORBELL_INT_CNTL"), 0u);
}

TEST(HangModes, SmuDead) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("smu-dead:after=1");
  for (const uint32_t expected : {1u, 0u, 0u}) {
    ASSERT_TRUE(session.WriteRegister("mmMP1_SMN_C2PMSG_90", 0));
    ASSERT_TRUE(session.WriteRegister("mmMP1_SMN_C2PMSG_66", 2));
    EXPECT_EQ(rig.Get("mmMP1_SMN_C2PMSG_90"), expected);
  }
}

TEST(HangModes, PspDead) {
  Rig rig;
  client::Session& session = rig.Open();
  rig.Hang("psp-dead");
  ASSERT_TRUE(session.WriteRegister("regMP0_SMN_C2PMSG_64", 0x30000));
  EXPECT_EQ(rig.Get("regMP0_SMN_C2PMSG_64") & 0x80000000, 0u);
  rig.gpu->Reset();
  ASSERT_TRUE(session.WriteRegister("regMP0_SMN_C2PMSG_35", 0x80000));
  EXPECT_EQ(rig.Get("regMP0_SMN_C2PMSG_35"), 0u);
}

TEST(HangModes, ConfigRetry) {
  Rig rig;
  rig.Hang("config-retry:after=1:count=4");
  EXPECT_EQ(rig.gpu->CfgRead(0, 4), 0x744c1002u);
  EXPECT_EQ(rig.gpu->CfgRead(0, 4), 0xffff0001u);
  EXPECT_EQ(rig.gpu->CfgRead(0, 2), 0x0001u);
  EXPECT_EQ(rig.gpu->CfgRead(2, 2), 0xffffu);
  EXPECT_EQ(rig.gpu->CfgRead(4, 2), 0xffffu);
  EXPECT_EQ(rig.gpu->CfgRead(0, 4), 0x744c1002u);
}

TEST(HangModes, CardThatIsGone) {
  Rig rig;
  client::Session& session = rig.Open(Impatient());
  const auto page = session.MapHost(0x1000).value();
  rig.gpu->SetGone(true);
  EXPECT_EQ(rig.Get("regSCRATCH_REG7"), 0xffffffffu);
  EXPECT_EQ(rig.gpu->CfgRead(0, 4), 0xffffffffu);
  const uint32_t fence[] = {0x00030005, Low(page.va), High(page.va), 5};
  ASSERT_TRUE(session.SubmitSdma(fence));
  EXPECT_EQ(Word(*page.memory, 0), 0u);
  rig.gpu->SetGone(false);
  EXPECT_EQ(rig.Get("regSCRATCH_REG7"), 0xA0000008u);
}

}  // namespace
}  // namespace tg::test
