// The same incidents in other clothes: another engine, a second process, a client that only sleeps,
// a server that leaves after the end. What is expected follows from the hang specification's table
// and from what the facts leave open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/explain/scene.h"

namespace tg::explain {
namespace {

using ::testing::HasSubstr;

void HangAtCopy(Scene& s, uint32_t n) {
  s.SdmaSubmit(n, n - 1);
  s.SdmaRead(s.sdma_wptr() - 44);  // past the POLL
  s.Wait(30);
  s.Recover();
  s.Finish();
}

std::string Findings(const Explanation& e) {
  std::string all;
  for (const Finding& f : e.findings)
    all += f.rule + " " + std::to_string(f.confidence) + ": " + f.summary + "\n";
  return all;
}

TEST(Variations, SecondSdmaEngine) {
  Scene s;
  s.sdma_engine = 1;
  s.Copies();
  HangAtCopy(s, 2);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << Findings(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("SDMA1 stuck at COPY_LINEAR"));
}

TEST(Variations, RecursInANewProcess) {
  Scene s;
  s.Copies();
  HangAtCopy(s, 2);
  s.Left();
  s.Again(2);
  s.Copies();
  HangAtCopy(s, 2);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << Findings(e);
  EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
}

TEST(Variations, RecursAfterAModeOneReset) {
  Scene s;
  s.Copies();
  HangAtCopy(s, 2);
  s.Left();
  s.Again(2);
  s.Open();
  s.Decide();
  s.Mode1Reset();
  s.W("regSCRATCH_REG7", 0xa0000008);
  s.W("regSCRATCH_REG6", 1);
  s.Queues();
  HangAtCopy(s, 1);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << Findings(e);
  EXPECT_EQ(e.verdict().advice, Advice::kReboot) << e.verdict().reason;
}

TEST(Variations, AHealthyRunAfterAHungOneTellsBoth) {
  Scene s;
  s.Copies();
  HangAtCopy(s, 2);
  s.Left();
  s.Again(2);
  s.Copies();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << Findings(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("connection 1: hang"));
  ASSERT_FALSE(e.verdict().against.empty());
  EXPECT_THAT(e.verdict().against.back().text, HasSubstr("SDMA0 stuck at COPY_LINEAR"));
}

TEST(Variations, ALookAtTheCardAfterAHangIsNotTheVerdict) {
  Scene s;
  s.Copies();
  HangAtCopy(s, 2);
  s.Left();
  s.Again(2);
  s.CfgRead(0, 4, 0x744c1002);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << Findings(e);
}

TEST(Variations, WhatAnEarlierClientLeftOpenIsNotThisOnes) {
  Scene s;
  s.Copies();
  s.Request(wire::Command::kMmioRead, 5, s.At("regIH_RB_WPTR"), 4);
  s.Left();
  s.Again(2);
  s.Copies();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << Findings(e);
}

// The process before hung; this one ends in its boot, in which it submitted nothing and waited for
// nothing: the engine's old state is not its verdict.
TEST(Variations, AHangBeforeIsNotThisBoots) {
  for (const double seconds : {0.1, 10.0}) {
    Scene s;
    s.Copies();
    HangAtCopy(s, 2);
    s.Left();
    s.Again(2);
    s.BootTo();
    s.W("mmMP1_SMN_C2PMSG_90", 0);
    s.W("mmMP1_SMN_C2PMSG_82", 0);
    s.W("mmMP1_SMN_C2PMSG_66", seconds < 1 ? 2 : 6);
    s.Poll("mmMP1_SMN_C2PMSG_90", 0, seconds, 40);
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().rule, "smu_dead") << Findings(e);
    // 0.1 s is no more than the liveness check takes: nothing drastic follows from it.
    EXPECT_EQ(e.verdict().confidence < 50, seconds < 1);
    EXPECT_EQ(e.verdict().advice, seconds < 1 ? Advice::kRestartProcess : Advice::kReboot);
    EXPECT_THAT(Findings(e), ::testing::Not(HasSubstr("sdma_stuck")));
  }
}

TEST(Variations, SleepingAfterManyCopiesIsNoLeak) {
  Scene s;
  s.Copies(40);
  s.Sleep(20);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "killed") << Findings(e);
}

TEST(Variations, AServerThatLeavesAfterTheEndIsNotAtFault) {
  Scene s;
  s.Copies();
  s.Finish();
  s.Closed("server");
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << Findings(e);
}

TEST(Variations, OneRegisterThatReadsOnesOnceIsNoLostDevice) {
  Scene s;
  s.Copies();
  s.R("regCP_STAT", 0xffffffff);
  s.R("regIH_RB_WPTR", 0);
  s.R("regCP_STAT", 0);
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << Findings(e);
}

TEST(Variations, ACutTraceOfALongWaitIsNotConfident) {
  Scene s;
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);
  s.Wait(12);
  s.file.whole = false;
  s.file.problem = "truncated at byte 1";
  const Explanation e = s.Explain();
  EXPECT_LT(e.verdict().confidence, 80) << Findings(e);
  EXPECT_NE(e.verdict().kind, "healthy");
}

TEST(Variations, WritePointerRegisterBehindTheDoorbell) {
  Scene s;
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 68);
  s.Wait(3);
  s.R("regSDMA0_QUEUE0_RB_WPTR", 0x44);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "doorbell_lost") << Findings(e);
}

TEST(Variations, PollsFailAfterAModeOneReset) {
  Scene s;
  s.Open();
  s.Decide();
  s.Mode1Reset();
  s.R("regMP0_SMN_C2PMSG_81", 0);
  s.W("regRLC_SAFE_MODE", 3);
  s.Poll("regRLC_SAFE_MODE", 3, 10);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "rlc_stuck") << Findings(e);
  EXPECT_EQ(e.verdict().advice, Advice::kReboot);
}

// Row 20: nothing after connect.
TEST(Variations, AServerThatServesSomebodyElse) {
  Scene s;
  s.Connect();
  s.Request(wire::Command::kMapBar, 0, 0);
  s.Sleep(20);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "second_client") << Findings(e);
  EXPECT_EQ(e.verdict().advice, Advice::kRestartProcess);
  EXPECT_THAT(e.verdict().reason, HasSubstr("end the other client first"));
  EXPECT_LE(e.verdict().summary.size(), kColumns);
}

TEST(Variations, EmptyInterruptRingReadOverAndOver) {
  Scene s;
  s.Copies();
  s.R("regIH_RB_WPTR", 0);
  s.R("regIH_RB_RPTR", 0);
  for (uint32_t i = 0; i < 80; i++) s.Read(0, 0x3000 + i * 4, 0);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "answers_shifted") << Findings(e);
}

TEST(Fit, CutsAtAWordAndNeverInsideALetter) {
  EXPECT_EQ(Fit("short"), "short");
  const std::string words = "word " + std::string(80, 'a') + " " + std::string(60, 'b');
  EXPECT_EQ(Fit(words), "word " + std::string(80, 'a') + "...");
  std::string letters;
  for (int i = 0; i < 60; i++) letters += "\xc3\xa4";
  const std::string cut = Fit(letters);
  EXPECT_LE(cut.size(), kColumns);
  EXPECT_EQ(cut.substr(cut.size() - 5), "\xc3\xa4...");
}

}  // namespace
}  // namespace tg::explain
