// The zoo of hangs, synthetic part: one session per row of the decision table (hang specification,
// section 6) and per class of field report. What is expected was written from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/explain/scene.h"

namespace tg::explain {
namespace {

using ::testing::HasSubstr;

struct Animal {
  const char* name;
  std::function<void(Scene&)> play;
  const char* rule;
  const char* kind;
  Advice advice;
  const char* summary;  // a part of it
  int at_least = 50;    // confidence
};

const std::vector<Animal>& Zoo() {
  static const std::vector<Animal> zoo = {
      // ---- nothing wrong ----
      {"Healthy",
       [](Scene& s) {
         s.Work();
         s.Finish();
         s.Closed();
       },
       "healthy", "healthy", Advice::kNothing, "2 submissions, all done", 80},
      {"LongKernel25s",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.Wait(25);
         s.Timeline(3);
         s.ComputeRead(s.compute_wptr());
         s.Drain();
         s.Finish();
         s.Closed();
       },
       "healthy", "healthy", Advice::kNothing, "3 submissions, all done", 80},
      {"InterruptedByCtrlC",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.Wait(4);
         s.Finish();
         s.Closed();
       },
       "healthy", "healthy", Advice::kNothing, "interrupted after waiting 4.0 s", 50},
      {"BootOnly",
       [](Scene& s) {
         s.Boot();
         s.Finish();
         s.Closed();
       },
       "healthy", "healthy", Advice::kNothing, "the driver finished in order", 70},
      // ---- row 3, B03 ----
      {"DeviceGone",
       [](Scene& s) {
         s.Work();
         s.CfgRead(0, 4, 0x744c1002);
         s.R("regIH_RB_WPTR", 0x10);
         s.Write(2, 0x800, 0x44, 8);
         for (int i = 0; i < 30; i++) s.R("regIH_RB_WPTR", 0xffffffff);
         s.CfgRead(0, 4, 0xffffffff);
         s.Closed();
       },
       "device_gone", "device_lost", Advice::kReboot, "gone from the bus", 90},
      {"BarOrLink",
       [](Scene& s) {
         s.Work();
         for (int i = 0; i < 30; i++) s.R("regIH_RB_WPTR", 0xffffffff);
         s.CfgRead(0, 4, 0x744c1002);
         s.Closed();
       },
       "bar_or_link", "unreachable", Advice::kReplug, "PCI config still answers", 80},
      // ---- row 4 ----
      {"ServerGone",
       [](Scene& s) {
         s.Work();
         s.Closed("server");
       },
       "server_gone", "device_lost", Advice::kRestartProcess, "server closed the connection", 80},
      // ---- rows 5, 6 ----
      {"ComputePageFault",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.Sleep(0.2);
         s.Interrupt(10, 0);  // GFX UTCL2_FAULT
         // TCP (client 8), read, entry not valid
         s.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 8u << 9 | 1u << 4);
         s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", 2);
         s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", 0x1234);
         s.HandlerEnd();
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "page_fault", "hang", Advice::kRestartProcess, "TCP", 85},
      {"SdmaPageFault",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(3, 2);
         s.Sleep(0.2);
         s.Interrupt(10, 0);
         s.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 13u << 9 | 1u << 18 | 1u << 4);  // SDMA0, write
         s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", 0);
         s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", Scene::kVram >> 12);
         s.HandlerEnd();
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "page_fault_sdma", "hang", Advice::kRestartProcess, "SDMA0", 85},
      // ---- row 7 ----
      {"BadOpcode",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.Sleep(0.2);
         s.Interrupt(20, 183);
         s.HandlerEnd();
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "bad_packet", "hang", Advice::kRestartProcess, "BAD_OPCODE", 85},
      {"ShaderError",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.Sleep(0.2);
         // SQ interrupt: encoding 2 (error) in ctx1[7:6], type 1 (ILLEGAL_INST) in ctx0[24:21]
         s.Interrupt(20, 239, {1u << 21, 2u << 6, 0, 0});
         s.HandlerEnd();
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "shader_error", "hang", Advice::kRestartProcess, "ILLEGAL_INST", 85},
      // ---- row 8: SDMA waits for a kernel that does not end ----
      {"ComputeHangSdmaInnocent",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         s.SdmaSubmit(4, 3);
         s.SdmaRead(0x44);
         s.ComputeRead(s.compute_wptr());
         s.Wait(30);
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "compute_hang", "hang", Advice::kRestartProcess, "compute queue stuck", 85},
      // ---- rows 9, 11: compute waits for a copy that does not end ----
      {"SdmaStuckAtCopy",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(3, 2);
         s.ComputeSubmit(4, 3);
         s.SdmaRead(0x44 + 6 * 4);  // past the POLL
         s.Wait(30);
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "sdma_stuck", "hang", Advice::kRestartProcess, "SDMA0 stuck at COPY_LINEAR", 85},
      {"SdmaStuckStillWaiting",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(3, 2);
         s.SdmaRead(0x44);
         s.Wait(30.5);
         s.Closed();
       },
       // Its wait holds and it stands before it: doorbell lost or engine halted.
       "not_started", "hang", Advice::kRestartProcess,
       "SDMA0 never began submission 2, fence 3 not seen", 70},
      // ---- row 10 ----
      {"WaitsForNobody",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(4, 3);  // number 3 was never submitted
         s.SdmaRead(0x44);
         s.Wait(30);
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "host_died", "hang", Advice::kRestartProcess, "nobody submitted", 80},
      {"DoorbellLost",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(3, 2, false);  // pointer written, doorbell never rung
         s.SdmaRead(0x44);
         s.Wait(30);
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "doorbell_lost", "hang", Advice::kRestartProcess, "doorbell lost", 85},
      {"FenceLost",
       [](Scene& s) {
         s.Work();
         s.SdmaSubmit(3, 2);
         s.SdmaRead(s.sdma_wptr());  // all read, timeline still 2
         s.Wait(30);
         s.Recover();
         s.Finish();
         s.Closed();
       },
       "fence_lost", "hang", Advice::kRestartProcess, "ring drained, fence not seen", 80},
      // ---- row 13 ----
      {"Killed",
       [](Scene& s) {
         s.Work();
         s.Closed();
       },
       "killed", "killed", Advice::kRestartProcess, "without finishing", 60},
      // ---- rows 14 to 18 ----
      {"SmuDead",
       [](Scene& s) {
         s.BootTo();
         s.W("mmMP1_SMN_C2PMSG_90", 0);
         s.W("mmMP1_SMN_C2PMSG_82", 0);
         s.W("mmMP1_SMN_C2PMSG_66", 0x6);
         s.Poll("mmMP1_SMN_C2PMSG_90", 0, 10);
         s.Closed();
       },
       "smu_dead", "hang", Advice::kReboot, "unanswered for 10.0 s", 85},
      {"PspDead",
       [](Scene& s) {
         s.BootTo();
         s.W("regMP0_SMN_C2PMSG_36", 0x100000 >> 20);
         s.W("regMP0_SMN_C2PMSG_35", 0x80000);
         s.Poll("regMP0_SMN_C2PMSG_35", 0, 10);
         s.Closed();
       },
       "psp_dead", "hang", Advice::kAmReset, "PSP did not finish", 85},
      {"TlbStuck",
       [](Scene& s) {
         s.Work();
         s.W("regGCVM_INVALIDATE_ENG17_REQ", 0xf80001);
         s.Poll("regGCVM_INVALIDATE_ENG17_ACK", 0, 10);
         s.Closed();
       },
       "tlb_stuck", "hang", Advice::kAmReset, "TLB invalidation not acknowledged", 85},
      {"MecDoesNotPreempt",
       [](Scene& s) {
         s.Boot();
         s.W("regGRBM_GFX_CNTL", 1u << 2);
         s.R("regCP_HQD_ACTIVE", 1);
         s.W("regCP_HQD_DEQUEUE_REQUEST", 2);
         s.W("regSPI_COMPUTE_QUEUE_RESET", 1);
         s.Poll("regCP_HQD_ACTIVE", 1, 10);
         s.Closed();
       },
       "mec_stuck", "hang", Advice::kAmReset, "does not give up its queue", 85},
      {"RlcSafeMode",
       [](Scene& s) {
         s.BootTo();
         s.W("regRLC_SAFE_MODE", 3);
         s.Poll("regRLC_SAFE_MODE", 3, 10);
         s.Closed();
       },
       "rlc_stuck", "hang", Advice::kAmReset, "safe mode", 85},
      {"FatalHardwareError",
       [](Scene& s) {
         s.Work();
         s.ComputeSubmit(3, 2);
         const auto* reg = s.device.registers().map().FindDef("regBIF_BX0_BIF_DOORBELL_INT_CNTL");
         const auto value =
             static_cast<uint32_t>(amd::SetField(*reg, "ras_cntlr_interrupt_status", 1));
         s.Wait(1, value);
         s.Closed();
       },
       "ras", "hang", Advice::kPowerCycle, "fatal hardware error", 90},
      // ---- row 19, B02 ----
      {"RegionCap",
       [](Scene& s) {
         s.Boot();
         for (uint32_t i = 0; i < 128; i++)
           s.Region(i, 0x4000, {{0x100000000 + i * 0x10000, 0x4000}});
         s.Request(wire::Command::kMapSysmemFd, 0, 0x1000);
         s.Reply(0, 0, {}, 1);
         s.Closed();
       },
       "region_cap", "refused", Advice::kRestartProcess, "MAP_SYSMEM_FD", 80},
      // ---- row 21 ----
      {"ServerBlocked",
       [](Scene& s) {
         s.Work();
         s.Request(wire::Command::kMmioRead, 5, s.At("regIH_RB_WPTR"), 4);
         s.Sleep(20);
         s.Closed();
       },
       "server_blocked", "hang", Advice::kReplug, "no answer to MMIO_READ", 80},
  };
  return zoo;
}

class ZooTest : public ::testing::TestWithParam<Animal> {};

TEST_P(ZooTest, FirstVerdictIsRight) {
  const Animal& animal = GetParam();
  Scene scene;
  animal.play(scene);
  const Explanation e = scene.Explain();
  const Finding& v = e.verdict();
  std::string all;
  for (const Finding& f : e.findings)
    all += f.rule + " " + std::to_string(f.confidence) + ": " + f.summary + "\n";
  EXPECT_EQ(v.rule, animal.rule) << all;
  EXPECT_EQ(v.kind, animal.kind) << all;
  EXPECT_EQ(AdviceWord(v.advice), AdviceWord(animal.advice)) << all;
  EXPECT_THAT(v.summary, HasSubstr(animal.summary));
  EXPECT_GE(v.confidence, animal.at_least) << all;
  EXPECT_LE(v.summary.size(), 100u) << v.summary;
  if (v.kind != "healthy") {
    EXPECT_FALSE(v.evidence.empty());
  }
}

// A trace that stops anywhere never gets a confident verdict that the whole one does not have.
TEST_P(ZooTest, CutAnywhereIsNeverConfidentlyWrong) {
  const Animal& animal = GetParam();
  Scene whole;
  animal.play(whole);
  for (uint64_t cut = 1; cut < whole.call; cut += 1 + whole.call / 60) {
    // Feeds only the records up to the cut.
    class Cut : public Scene {
     public:
      explicit Cut(uint64_t last) : last_(last) {}
      void Emit(const trace::Record& record) override {
        if (record.call <= last_ && record.time_ns < stop_) {
          if (record.call == last_ && record.kind == trace::Record::Kind::kReply) stop_ = 0;
          seen.Feed(record);
        }
        Feeder::Emit(record);
      }

     private:
      uint64_t last_;
      uint64_t stop_ = ~0ull;
    } scene(cut);
    animal.play(scene);
    scene.file.whole = false;
    scene.file.problem = "truncated at byte 1";
    const Explanation e = scene.Explain();
    const Finding& v = e.verdict();
    if (v.confidence >= 80) {
      EXPECT_EQ(v.kind, animal.kind)
          << "cut after call " << cut << ": " << v.rule << " " << v.summary;
    }
    EXPECT_TRUE(v.kind != "healthy" || v.confidence < 50) << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooTest, ::testing::ValuesIn(Zoo()),
                         [](const auto& animal) { return std::string(animal.param.name); });

TEST(Explain, LossIsNamedAndWeakens) {
  Scene with_loss, without;
  for (Scene* s : {&with_loss, &without}) {
    s->Work();
    s->SdmaSubmit(3, 2);
    s->SdmaRead(0x44);
    s->Wait(30);
    s->Recover();
    s->Finish();
    s->Closed();
  }
  with_loss.file.lost_calls = 7;
  const Explanation a = with_loss.Explain(), b = without.Explain();
  EXPECT_LT(a.verdict().confidence, b.verdict().confidence);
  ASSERT_FALSE(a.verdict().against.empty());
  EXPECT_THAT(a.verdict().against.back().text, HasSubstr("7 records were lost"));
}

TEST(Explain, SaysWhatRecoveryLeavesAndWhatTheNextStartDoes) {
  Scene s;
  s.Work();
  s.SdmaSubmit(3, 2);
  s.SdmaRead(0x44);
  s.Wait(30);
  s.Recover();
  s.Finish(0);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_THAT(e.recovery, HasSubstr("SDMA ring and engine"));
  EXPECT_THAT(e.noticed, HasSubstr("after waiting 30.0 s"));
  EXPECT_THAT(e.next_start, HasSubstr("partial boot"));
}

TEST(Explain, NothingRecorded) {
  Scene s;
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "incomplete");
}

}  // namespace
}  // namespace tg::explain
