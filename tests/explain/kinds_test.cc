// Sessions in which more than one thing happened, or in which what happened looks like something
// else. What is expected follows from the hang specification and from what the driver then does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/explain/scene.h"

namespace tg::explain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string All(const Explanation& e) {
  std::string all;
  for (const Finding& f : e.findings)
    all += f.rule + " " + std::to_string(f.confidence) + ": " + f.summary + "\n";
  return all;
}
std::string Texts(const std::vector<Evidence>& list) {
  std::string all;
  for (const Evidence& e : list) all += e.text + "\n";
  return all;
}

// A copy that stops in its COPY packet.
void StuckCopy(Scene& s, uint32_t n = 3) {
  s.SdmaSubmit(n, n - 1);
  s.SdmaRead(s.sdma_wptr() - 44);
}
// A kernel that does not end, and what recovery makes of it: the timeline counts as done.
void KernelGivenUp(Scene& s, uint32_t n) {
  s.ComputeSubmit(n, n - 1);
  s.ComputeRead(s.compute_wptr());
  s.Wait(1.5);
  s.Recover();
  s.ForgetCompute();
  s.Timeline(n);
}
void KernelDone(Scene& s, uint32_t n) {
  s.ComputeSubmit(n, n - 1);
  s.Timeline(n);
  s.ComputeRead(s.compute_wptr());
  s.Drain();
}

// BEAM gives kernels up after their time and goes on: can_recover is for that.
TEST(Kinds, TimeoutsWithWorkDoneSinceAreNoHang) {
  Scene s;
  s.Work();
  KernelGivenUp(s, 3);
  KernelDone(s, 4);
  KernelGivenUp(s, 5);
  KernelDone(s, 6);
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << All(e);
  EXPECT_THAT(Texts(e.verdict().against), HasSubstr("2 waits ended in recovery"));
}

TEST(Kinds, AFailedKernelThatWasGivenUpIsNotTheVerdict) {
  for (const bool went_on : {false, true}) {
    Scene s;
    s.Work();
    s.ComputeSubmit(3, 2);
    s.Sleep(0.2);
    s.Interrupt(20, 239, {1u << 21, 2u << 6, 0, 0});
    s.HandlerEnd();
    s.Recover();
    s.ForgetCompute();
    s.Timeline(3);
    if (went_on) KernelDone(s, 4);
    s.Finish();
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().rule, went_on ? "healthy" : "shader_error") << All(e);
  }
}

TEST(Kinds, TheSecondTimeoutMayBeTheHang) {
  Scene s;
  s.Work();
  KernelGivenUp(s, 3);
  KernelDone(s, 4);
  StuckCopy(s, 5);
  s.Wait(30);
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
}

// Recovery does not reset SDMA: kernels run again, the copy stays where it is.
TEST(Kinds, AStuckCopyIsNotSurvivedByKernels) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.Wait(30);
  s.Recover();
  s.ForgetCompute();
  s.Timeline(3);
  KernelDone(s, 4);
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
}

TEST(Kinds, ACardThatFallsOffInAWaitIsLost) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.Wait(5);
  for (int i = 0; i < 200; i++) s.R("regIH_RB_WPTR", 0xffffffff);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "device_lost") << All(e);
}

// What a lost card answers is no interrupt either.
TEST(Kinds, EntriesOfOnesAreNoInterrupts) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.Wait(5);
  s.R("regIH_RB_WPTR", 0xffffffff);
  s.R("regIH_RB_RPTR", 0);
  for (uint32_t i = 0; i < 64; i++) s.Read(0, 0x3000 + i * 4, 0xffffffff);
  for (int i = 0; i < 50; i++) s.R("regIH_RB_WPTR", 0xffffffff);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "device_lost") << All(e);
  EXPECT_THAT(e.noticed, Not(HasSubstr("255")));
}

// Thirty seconds of waiting in vain come before the server's end.
TEST(Kinds, AServerThatLeavesAClientLongHung) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.Wait(30);
  s.Closed("server");
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  ASSERT_GE(e.findings.size(), 2u);
  EXPECT_EQ(e.findings[1].rule, "server_gone");
}

TEST(Kinds, TwoFaultsAreBothTold) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.ComputeSubmit(4, 2);
  s.Sleep(0.2);
  s.Interrupt(10, 0);
  s.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 8u << 9 | 1u << 4);
  s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", 2);
  s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", 0x1234);
  s.HandlerEnd();
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "page_fault") << All(e);
  ASSERT_GE(e.findings.size(), 2u);
  EXPECT_EQ(e.findings[1].rule, "sdma_stuck") << All(e);
}

// CP_EOP_INTERRUPT (181): the driver compares with another name, so it ends the wait at once.
TEST(Kinds, AnInterruptThatMeansNoHarmEndsTheWait) {
  Scene s;
  s.Work();
  s.ComputeSubmit(3, 2);
  s.Sleep(0.2);
  s.Interrupt(20, 181);
  s.HandlerEnd();
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "error_interrupt") << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("CP_EOP_INTERRUPT"));
}

TEST(Kinds, BitErrorsAreTheCards) {
  const std::pair<uint8_t, const char*> sources[] = {
      {197, "CP_ECC_ERROR"}, {201, "CP_FUE_ERROR"}, {62, "SDMA_ECC"}, {64, "SDMA_SRAM_ECC"}};
  for (const auto& [source, name] : sources) {
    Scene s;
    s.Work();
    s.ComputeSubmit(3, 2);
    s.Sleep(0.2);
    s.Interrupt(10, source);
    s.HandlerEnd();
    s.Recover();
    s.Finish();
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().rule, "bit_error") << All(e);
    EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
    EXPECT_THAT(e.verdict().summary, HasSubstr(name));
  }
}

// Row 11: one start with AM_RESET=1; "a failed AM_RESET=1 start (... or the same SDMA head again)".
TEST(Kinds, StuckAtOnceThoughStartedWithAmReset) {
  Scene s;
  s.Open();
  s.Decide(0xa0000008);
  s.R("regMP0_SMN_C2PMSG_81", 1);
  s.Mode1Reset();
  s.W("regSCRATCH_REG7", 0xa0000008);
  s.W("regSCRATCH_REG6", 1);
  s.Queues();
  StuckCopy(s, 1);
  s.Wait(30);
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kReboot);
}

// Python leaves in order after an exception, too.
TEST(Kinds, AnExceptionThatEndsInAnOrderlyFinishIsNoHealth) {
  {
    Scene s;
    s.Work();
    s.W("regGCVM_INVALIDATE_ENG17_REQ", 0xf80001);
    s.Poll("regGCVM_INVALIDATE_ENG17_ACK", 0, 10);
    s.Finish();
    s.Closed();
    EXPECT_EQ(s.Explain().verdict().rule, "tlb_stuck");
  }
  {
    Scene s;
    s.Work();
    s.Request(wire::Command::kMapSysmemFd, 0, 0x1000);
    s.Reply(0, 0, {}, 1);
    s.Finish();
    s.Closed();
    EXPECT_EQ(s.Explain().verdict().kind, "refused");
  }
}
// ... but what was survived did not end it.
TEST(Kinds, WhatWorkFollowedIsNotTheEnd) {
  Scene s;
  s.Work();
  s.Poll("regCP_HQD_ACTIVE", 1, 10);  // no dequeue was asked for: not the driver's loop
  s.Request(wire::Command::kMapSysmemFd, 0, 0x1000);
  s.Reply(0, 0, {}, 1);
  KernelDone(s, 3);
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << All(e);
}

// The driver clears the RAS bits once it has seen them.
TEST(Kinds, RasBitsThatWereClearedWereStillThere) {
  Scene s;
  s.Work();
  s.ComputeSubmit(3, 2);
  const auto* reg = s.device.registers().map().FindDef("regBIF_BX0_BIF_DOORBELL_INT_CNTL");
  const auto field = [reg](const char* name) {
    return static_cast<uint32_t>(amd::SetField(*reg, name, 1));
  };
  s.Sleep(0.2);
  s.Round(field("ras_athub_err_event_interrupt_status"));
  s.W("regBIF_BX0_BIF_DOORBELL_INT_CNTL", field("ras_athub_err_event_interrupt_clear"));
  s.Round(0);
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "ras") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kPowerCycle);
  EXPECT_THAT(e.verdict().summary, HasSubstr("ATHUB"));
}

// What the verdict says better is not said a second time.
TEST(Kinds, OneIncidentOneFinding) {
  Scene s;
  s.Work();
  StuckCopy(s);
  s.Wait(30);
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.findings.size(), 1u) << All(e);
}

// Where the faulting queue stands belongs to the fault; the other engine's trouble does not.
TEST(Kinds, AFaultCoversItsOwnQueueOnly) {
  Scene s;
  s.Work();
  s.ComputeSubmit(3, 2);
  s.ComputeRead(s.compute_wptr() - 20);  // never began
  s.Sleep(0.2);
  s.Interrupt(10, 0);
  s.R("regGCVM_L2_PROTECTION_FAULT_STATUS", 5u << 9 | 1u << 4);  // CPC
  s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", 0);
  s.R("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", Scene::kComputeRing >> 12);
  s.HandlerEnd();
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "page_fault") << All(e);
  EXPECT_EQ(e.findings.size(), 1u) << All(e);
  EXPECT_THAT(Texts(e.verdict().evidence), HasSubstr("COMPUTE0 rptr"));
}

TEST(Kinds, TheNewestWritesAreTheSuspects) {
  Scene s;
  s.Work();
  for (uint32_t i = 0; i < 30; i++) s.Write(5, 0x1000 + 4 * i, i);
  s.Request(wire::Command::kMmioRead, 5, s.At("regIH_RB_WPTR"), 4);
  s.Sleep(20);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "server_blocked") << All(e);
  const std::string texts = Texts(e.verdict().evidence);
  EXPECT_THAT(texts, HasSubstr("bar5+0x1074"));
  EXPECT_THAT(texts, Not(HasSubstr("bar5+0x1000 ")));
}

// Each waits for what the other has still to write: row 10, first case.
TEST(Kinds, QueuesThatWaitForEachOther) {
  Scene s;
  s.Copies();
  s.ComputeSubmit(2, 3);
  s.SdmaSubmit(3, 2);
  s.SdmaRead(s.sdma_wptr() - 68);
  s.ComputeRead(0);
  s.Wait(30);
  s.Recover();
  s.Finish(1);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "deadlock") << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("wait for each other"));
  EXPECT_THAT(e.verdict().summary, HasSubstr("COMPUTE0"));
  EXPECT_THAT(e.verdict().summary, HasSubstr("SDMA0"));
  EXPECT_THAT(All(e), Not(HasSubstr("nobody submitted")));
  EXPECT_EQ(e.verdict().advice, Advice::kRestartProcess);
}

// Nobody saw the read pointer: a kernel that hangs and a doorbell that was lost look the same.
TEST(Kinds, WithoutAReadPointerNothingIsSure) {
  Scene s;
  s.Copies();
  s.ComputeSubmit(2, 1);
  s.Wait(31);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "compute_hang") << All(e);
  EXPECT_LT(e.verdict().confidence, 80);
  EXPECT_THAT(Texts(e.verdict().against), HasSubstr("may never have heard the doorbell"));
}

}  // namespace
}  // namespace tg::explain
