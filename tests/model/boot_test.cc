// Phases and the decision between full and partial boot, with the order of amd-boot.
#include "decoder/model/boot.h"

#include <gtest/gtest.h>

#include "tests/model/feeder.h"

namespace tg::model {
namespace {

class Driver : public Feeder {
 public:
  void Start() {
    Connect();
    Request(wire::Command::kResizeBar, 0, 0);
    Reply(0);
    MapBar(0, 16ull << 30);
    MapBar(2, 2 << 20);
    MapBar(5, 1 << 20);
    Read(5, 0x378c, 16 << 10);
    Request(wire::Command::kMmioWrite, 0, 0, 0x1000, 0, {}, true);
    R("regMMMC_VM_FB_LOCATION_BASE", 0x8000);
  }
  void Smu(uint32_t message, uint32_t argument = 0, uint32_t response = 1) {
    W("mmMP1_SMN_C2PMSG_90", 0);
    W("mmMP1_SMN_C2PMSG_82", argument);
    W("mmMP1_SMN_C2PMSG_66", message);
    R("mmMP1_SMN_C2PMSG_90", response);
  }
  void FullPart() {
    R("regMP0_SMN_C2PMSG_81", 0);
    CfgRead(4, 2, 7);
    CfgWrite(4, 2, 7);
    W("regBIF_BX_PF0_RSMU_INDEX", static_cast<uint32_t>(At("regRCC_DEV0_EPF2_STRAP2")));
    R("regBIF_BX_PF0_RSMU_DATA", 0);
    W("regMMMC_VM_AGP_BASE", 0);
    W("regIH_RB_BASE", 0x80000030);
    R("regMP0_SMN_C2PMSG_81", 1);
    R("regMP0_SMN_C2PMSG_71", 0);
    Smu(0x0e);
    Smu(0x06);
  }
  void SecondPart(uint32_t version = 0xA0000008) {
    R("regCP_STAT", 0);
    W("regGCMC_VM_AGP_BASE", 0);
    R("regSDMA0_WATCHDOG_CNTL", 0);
    Smu(0x1f, 2 << 16 | 0xff);
    R("regHDP_MEM_POWER_CTRL", 0);
    W("regRLC_SAFE_MODE", 3);
    W("regSCRATCH_REG7", version);
    W("regSCRATCH_REG6", 1);
  }
  void Run() {
    Region(0, 0x4000, {{0x100000000, 0x4000}});
    Write(2, 0x800, 0x44, 8);
  }
  void Finish(uint32_t error = 0) {
    W("regSDMA0_QUEUE0_RB_CNTL", 0);
    W("regGRBM_SOFT_RESET", 0x800000);
    W("regGRBM_SOFT_RESET", 0);
    W("regSCRATCH_REG6", error);
  }
  const BootSession& Session() const { return *device.boot().current(); }
  std::vector<std::string> Phases() const {
    std::vector<std::string> names;
    for (const PhaseSpan& span : Session().phases) names.emplace_back(PhaseName(span.phase));
    return names;
  }
};

TEST(Boot, FullBootOfAFreshCard) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0);
  d.FullPart();
  d.SecondPart();
  d.Run();
  d.Finish();
  EXPECT_EQ(d.Phases(),
            (std::vector<std::string>{"connect", "discovery", "software init", "decision", "reset",
                                      "soc", "mm hub", "ih", "psp", "smu", "gfx", "sdma", "clocks",
                                      "clock gating", "done", "queues", "run", "finish"}));
  EXPECT_EQ(d.Session().kind, BootKind::kFull);
  EXPECT_EQ(d.Session().reason,
            "REG7 0x0 (not set up by AM since power-on or reset): not the driver's own state -> "
            "full boot, REG6 not consulted");
  EXPECT_EQ(d.Session().end, SessionEnd::kClean);
  EXPECT_EQ(d.Session().soft_resets_sdma, 1u);
  EXPECT_TRUE(d.Session().booted);
  uint64_t calls = 0;
  for (const PhaseSpan& span : d.Session().phases) {
    calls += span.calls;
    EXPECT_LE(span.first.call, span.last.call) << PhaseName(span.phase);
  }
  EXPECT_EQ(calls, d.call);
  EXPECT_EQ(d.Session().Find(Phase::kConnect)->calls, 4u);
  EXPECT_EQ(d.device.boot().NextStart(), "partial boot, if no page fault is latched");
}

// Field report B09.
TEST(Boot, MalformedState) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000008);
  d.R("regSCRATCH_REG6", 1);
  EXPECT_EQ(
      d.Session().reason,
      "REG7 0xa0000008 (AM since 2026-01-26), REG6 1: previous session did not finish cleanly "
      "-> full reset expected");
  EXPECT_EQ(d.Session().kind, BootKind::kUnknown);
  d.FullPart();
  EXPECT_EQ(d.Session().kind, BootKind::kFull);
}

TEST(Boot, OlderAmLeftTheCard) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000007);
  EXPECT_EQ(d.Session().reason,
            "REG7 0xa0000007: older AM left this state; cold boot expected, REG6 not consulted (AM "
            "of 2025-12-22)");
}

// The trace may be of an older driver, for which that version is its own.
TEST(Boot, OlderDriverFindsItsOwnState) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000007);
  d.R("regSCRATCH_REG6", 0);
  d.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 0);
  d.SecondPart(0xA0000007);
  EXPECT_EQ(d.Session().kind, BootKind::kPartial);
  EXPECT_EQ(d.Session().reason,
            "REG7 0xa0000007 (AM of 2025-12-22, older than the current 0xa0000008), REG6 0, no "
            "fault: previous session finished cleanly -> partial boot");
}

TEST(Boot, AllOnesAreNoVersion) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xffffffff);
  EXPECT_EQ(d.Session().reason,
            "REG7 0xffffffff: not a version, the register reads all ones (link or BAR problem)");
  EXPECT_EQ(d.link().state(), LinkState::kAllOnes);
  EXPECT_FALSE(d.link().config_answers());
}

TEST(Boot, PartialBootAfterACleanEnd) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000008);
  d.R("regSCRATCH_REG6", 0);
  d.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 0);
  d.SecondPart();
  EXPECT_EQ(d.Phases(),
            (std::vector<std::string>{"connect", "discovery", "software init", "decision", "gfx",
                                      "sdma", "clocks", "clock gating", "done", "queues"}));
  EXPECT_EQ(d.Session().kind, BootKind::kPartial);
  EXPECT_EQ(d.Session().reason,
            "REG7 0xa0000008 (AM since 2026-01-26), REG6 0, no fault: previous session finished "
            "cleanly -> partial boot");
  EXPECT_EQ(d.device.boot().NextStart(),
            "full boot with mode-1 reset (REG6 was left at 1: no clean end was seen)");
}

TEST(Boot, FaultLeftBehindAndForcedReset) {
  Driver fault;
  fault.Start();
  fault.R("regSCRATCH_REG7", 0xA0000008);
  fault.R("regSCRATCH_REG6", 0);
  fault.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 0x00041a11);
  fault.FullPart();
  EXPECT_EQ(fault.Session().reason,
            "REG7 0xa0000008 (AM since 2026-01-26), REG6 0, but fault status 0x41a11: a page fault "
            "was left behind -> full reset expected");
  Driver forced;
  forced.Start();
  forced.R("regSCRATCH_REG7", 0xA0000008);
  EXPECT_EQ(forced.Session().reason, "REG7 0xa0000008 (AM since 2026-01-26)");
  forced.FullPart();
  EXPECT_EQ(
      forced.Session().reason,
      "REG7 0xa0000008 (AM since 2026-01-26), REG6 not consulted: AM_RESET=1 asked for a full "
      "boot");
}

TEST(Boot, RecoveryThenRunThenErrorEnd) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0);
  d.FullPart();
  d.SecondPart();
  d.Run();
  d.W("regGRBM_GFX_CNTL", 4);
  d.R("regCP_HQD_ACTIVE", 0);
  d.W("regCP_MEC_RS64_CNTL", 0x10000);
  d.W("regCP_MEC_RS64_CNTL", 0);
  d.Write(2, 0x18, 10, 8);
  d.Finish(1);
  const auto phases = d.Phases();
  EXPECT_EQ((std::vector<std::string>(phases.end() - 4, phases.end())),
            (std::vector<std::string>{"run", "recovery", "run", "finish"}));
  EXPECT_EQ(d.Session().recoveries, 1u);
  EXPECT_EQ(d.Session().end, SessionEnd::kErrorState);
  EXPECT_EQ(d.device.boot().NextStart(), "full boot with mode-1 reset (REG6 is 1)");
}

TEST(Boot, ModeOneResetIsSeen) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000008);
  d.R("regSCRATCH_REG6", 1);
  d.R("regMP0_SMN_C2PMSG_81", 1);
  d.Smu(2);
  d.CfgRead(4, 2, 7);
  d.CfgWrite(4, 2, 3);
  d.W("mmMP1_SMN_C2PMSG_54", 0);
  d.W("mmMP1_SMN_C2PMSG_53", 0);
  d.W("mmMP1_SMN_C2PMSG_75", 2);
  d.R("mmMP1_SMN_C2PMSG_54", 1);
  EXPECT_TRUE(d.Session().mode1_reset);
  EXPECT_EQ(d.device.smu().exchanges().newest()->name, "debug Mode1Reset");
  EXPECT_TRUE(d.device.smu().exchanges().newest()->ok());
  ASSERT_EQ(d.device.bars().bus_master().size(), 1u);
  EXPECT_FALSE(d.device.bars().bus_master()[0].on);
}

TEST(Boot, SecondConnectionIsASecondSession) {
  Driver d;
  d.Start();
  d.R("regSCRATCH_REG7", 0);
  d.FullPart();
  d.SecondPart();
  d.Finish();
  d.Start();
  d.R("regSCRATCH_REG7", 0xA0000008);
  ASSERT_EQ(d.device.boot().sessions().size(), 2u);
  EXPECT_EQ(d.device.boot().sessions()[0].end, SessionEnd::kClean);
  EXPECT_EQ(d.device.boot().sessions()[1].reg7_read, 0xA0000008u);
}

}  // namespace
}  // namespace tg::model
