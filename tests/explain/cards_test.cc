// Advice by card: what the driver can reset differs (tinygrad a9069c17 and 0.14.0, am/amdev.py and
// am/ip.py: fini_hw of SDMA, is_hive, the rule for gc 9.5.0).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/explain/scene.h"

namespace tg::explain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint16_t kNavi31 = 0x744c, kNavi33 = 0x7480, kNavi48 = 0x7550, kNavi44 = 0x7590,
                   kMi300x = 0x74a1, kMi350x = 0x75a0;
constexpr uint32_t kAmVersion = 0xa0000008;

std::string All(const Explanation& e) {
  std::string all;
  for (const Finding& f : e.findings)
    all += f.rule + " " + std::to_string(f.confidence) + ": " + f.summary + " / " + AdviceText(f) +
           "\n";
  return all;
}

Explanation SdmaStuck(Scene& s) {
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);  // past the POLL
  s.Wait(30);
  s.Recover();
  s.Finish();
  s.Closed();
  return s.Explain();
}

TEST(Cards, SdmaSixAndLaterIsResetWhenTheDriverEnds) {
  for (const uint16_t card : {kNavi31, kNavi33, kNavi48, kNavi44}) {
    Scene s;
    s.pci_device = card;
    const Explanation e = SdmaStuck(s);
    EXPECT_EQ(e.verdict().rule, "sdma_stuck") << std::hex << card << "\n" << All(e);
    EXPECT_EQ(e.verdict().advice, Advice::kRestartProcess);
    EXPECT_THAT(e.verdict().reason, HasSubstr("soft-resets SDMA"));
  }
}

TEST(Cards, Mi300xGetsNoSoftReset) {
  Scene s;
  s.pci_device = kMi300x;
  const Explanation e = SdmaStuck(s);
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("SDMA0 stuck at COPY_LINEAR"));
  EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
  EXPECT_THAT(e.verdict().reason, HasSubstr("no soft reset when the driver ends"));
  EXPECT_THAT(e.verdict().reason, HasSubstr("hive_reset.py"));
  EXPECT_THAT(e.verdict().reason, Not(HasSubstr("ending the process in order")));
}

TEST(Cards, AHiveIsNotResetByItsDriver) {
  Scene s;
  s.pci_device = kMi300x;
  s.xgmi_max_region = 7;
  s.xgmi_segment = 0x3000;
  const Explanation e = SdmaStuck(s);
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kHiveReset);
  EXPECT_THAT(AdviceText(e.verdict()), HasSubstr("RUN extra/amdpci/hive_reset.py"));
}

// xgmi_max_region 0: a card by itself may still have a segment size (MI350P).
TEST(Cards, OneRegionIsNoHive) {
  Scene s;
  s.pci_device = kMi300x;
  s.xgmi_segment = 0x3000;
  EXPECT_EQ(SdmaStuck(s).verdict().advice, Advice::kAmReset);
}

TEST(Cards, Mi350xKeepsItsStateWhateverAmResetSays) {
  Scene s;
  s.pci_device = kMi350x;
  const Explanation e = SdmaStuck(s);
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kHiveReset);
  EXPECT_THAT(e.verdict().reason, HasSubstr("AM_RESET=1 or not"));
}

TEST(Cards, WhatTheNextStartOfAKilledSessionDoes) {
  const auto next = [](uint16_t card, uint32_t max_region) {
    Scene s;
    s.pci_device = card;
    s.xgmi_max_region = max_region;
    s.xgmi_segment = max_region ? 0x3000 : 0;
    s.Copies();
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().kind, "killed") << All(e);
    return e;
  };
  EXPECT_THAT(next(kNavi31, 0).next_start, HasSubstr("full boot with mode-1 reset"));
  EXPECT_THAT(next(kMi300x, 0).next_start, HasSubstr("full boot with mode-1 reset"));
  const Explanation hive = next(kMi300x, 7);
  EXPECT_THAT(hive.next_start, HasSubstr("hive_reset.py"));
  EXPECT_EQ(hive.verdict().advice, Advice::kHiveReset);
  const Explanation kept = next(kMi350x, 0);
  EXPECT_THAT(kept.next_start, HasSubstr("partial boot"));
  EXPECT_EQ(kept.verdict().advice, Advice::kRestartProcess);
  EXPECT_THAT(kept.verdict().reason, Not(HasSubstr("full boot with mode-1 reset;")));
}

// "Malformed state. Use extra/amdpci/hive_reset.py": the driver switches bus mastering off and
// ends.
TEST(Cards, TheDriverRefusesToStartOnAHiveLeftRunning) {
  Scene s;
  s.pci_device = kMi300x;
  s.xgmi_max_region = 7;
  s.xgmi_segment = 0x3000;
  s.Open();
  s.Decide(kAmVersion);
  s.R("regSCRATCH_REG6", 1);
  s.R("regMP0_SMN_C2PMSG_81", 1);
  s.CfgRead(4, 2, 0x0006);
  s.CfgWrite(4, 2, 0x0002);
  s.CfgRead(4, 2, 0x0002);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "hive_refused") << All(e);
  EXPECT_EQ(e.verdict().kind, "refused");
  EXPECT_EQ(e.verdict().advice, Advice::kHiveReset);
  EXPECT_THAT(e.verdict().summary, HasSubstr("REG6"));
}

TEST(Cards, TlbOfMi350xAsksForTheResetThatWorksThere) {
  Scene s;
  s.pci_device = kMi350x;
  s.Copies();
  s.W("regGCVM_INVALIDATE_ENG17_REQ", 0xf80001);
  s.Poll("regGCVM_INVALIDATE_ENG17_ACK", 0, 10);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "tlb_stuck") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kHiveReset);
}

// irqsrcs_sdma0_4_0.h: client SDMA0 (8), source 245.
TEST(Cards, SdmaInterruptOfGfx9) {
  Scene s;
  s.pci_device = kMi300x;
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);
  s.Sleep(0.2);
  s.Interrupt(8, 245);
  s.HandlerEnd();
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
  EXPECT_THAT(e.verdict().evidence.front().text, HasSubstr("SDMA_FROZEN"));
}

}  // namespace
}  // namespace tg::explain
