// Traces that begin in the middle of a session: the recorder came late, or the file's head is gone.
// What is seen holds; what the driver did before is said to be unknown, never guessed. And mailbox
// answers: the power controller that says no is alive (driver: any answer but 0 counts as alive,
// any but 1 is no success; 10 s, 100 ms for the liveness check).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/explain/scene.h"

namespace tg::explain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Texts(const std::vector<Evidence>& list) {
  std::string all;
  for (const Evidence& e : list) all += e.text + "\n";
  return all;
}
std::string All(const Explanation& e) {
  std::string all;
  for (const Finding& f : e.findings)
    all += f.rule + " " + std::to_string(f.confidence) + ": " + f.summary + " / " + AdviceText(f) +
           "\n" + Texts(f.against);
  return all;
}

constexpr const char* kNotSeen = "the driver's start is not in the trace";

struct Joined {
  const char* name;
  void (*play)(Scene&);
  const char* rule;
  const char* summary;
  const char* unknown;  // what the report says it cannot know
  int at_most = 100;    // confidence
};
void PrintTo(const Joined& j, std::ostream* out) {
  *out << j.name;
}

constexpr const char* kAllUnknown =
    "full or partial boot and why, page tables, queues (rings, pointers, fences)";

const Joined kJoined[] = {
    {"DoorbellsThenKilled",
     [](Scene& s) {
       s.Write(2, 0x800, 0x2484, 8);
       s.Drain();
       s.Write(2, 0x800, 0x24c8, 8);
       s.Drain();
     },
     "killed", "ended without finishing; its start is not in the trace", kAllUnknown, 60},
    {"AWaitAndItsRecovery",
     [](Scene& s) {
       s.Wait(30);
       s.Recover();
     },
     "hang", "waited 30.0 s for the GPU; which engine is stuck: not observed", kAllUnknown, 60},
    {"ADoorbellAndAWait",
     [](Scene& s) {
       s.Write(2, 0x18, 0x2484, 8);
       s.Wait(12);
     },
     "hang", "waited 12.0 s for the GPU", kAllUnknown, 60},
    {"WorkThenTheFinish",
     [](Scene& s) {
       s.Write(2, 0x800, 0x2484, 8);
       s.Drain();
       s.Finish();
     },
     "healthy", "the driver finished in order", kAllUnknown, 65},
    {"InTheBoot",
     [](Scene& s) {
       s.W("regGCVM_INVALIDATE_ENG17_REQ", 0xf80001);
       s.Poll("regGCVM_INVALIDATE_ENG17_ACK", 0, 10);
     },
     "tlb_stuck", "TLB invalidation not acknowledged", kAllUnknown},
    {"AtTheEndOfTheBoot",
     [](Scene& s) {
       s.W("regSCRATCH_REG7", 0xa0000008);
       s.W("regSCRATCH_REG6", 1);
       s.Queues();
       s.SdmaSubmit(1, 0);
       s.SdmaRead(s.sdma_wptr() - 44);
       s.Wait(30);
       s.Recover();
       s.Finish(1);
     },
     "sdma_stuck", "SDMA0 stuck at COPY_LINEAR", "full or partial boot and why, page tables"},
    {"WhereTheQueuesAreSetUp",
     [](Scene& s) {
       s.Queues();
       s.ComputeSubmit(1, 0);
       s.ComputeRead(s.compute_wptr());
       s.Wait(30);
       s.Recover();
       s.Finish();
     },
     "compute_hang", "compute queue stuck at DISPATCH_DIRECT",
     "full or partial boot and why, page tables"},
};

class JoinedTest : public ::testing::TestWithParam<Joined> {};

TEST_P(JoinedTest, SaysThatTheStartWasNotSeen) {
  Scene s;
  s.Connect();
  GetParam().play(s);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, GetParam().rule) << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr(GetParam().summary));
  EXPECT_THAT(Texts(e.verdict().against), HasSubstr(kNotSeen));
  EXPECT_THAT(Texts(e.verdict().against), HasSubstr(GetParam().unknown));
  EXPECT_LE(e.verdict().confidence, GetParam().at_most);
  EXPECT_THAT(All(e), Not(HasSubstr("during boot, in phase")));
}

INSTANTIATE_TEST_SUITE_P(Explain, JoinedTest, ::testing::ValuesIn(kJoined),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Joined, TheRecoveryIsSeenWithoutADoorbell) {
  Scene s;
  s.Connect();
  s.Wait(30);
  s.Recover();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_THAT(e.noticed, HasSubstr("its hang handler ran"));
  EXPECT_THAT(e.recovery, HasSubstr("compute queue"));
}

// A write of 1 that is no driver's first sign of an end in error state, but of the end of its boot.
TEST(Joined, TheLastWriteOfABootIsNoErrorState) {
  Scene s;
  s.Connect();
  s.W("regSCRATCH_REG6", 1);
  s.Queues();
  s.SdmaSubmit(1, 0);
  s.SdmaRead(s.sdma_wptr());
  s.Timeline(1);
  s.Drain();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "killed") << All(e);
  EXPECT_THAT(e.next_start, HasSubstr("REG6 was left at 1"));
}

// The second connection is whole: nothing is unknown about it.
TEST(Joined, AWholeSessionAfterIt) {
  Scene s;
  s.Connect();
  s.Write(2, 0x800, 0x2484, 8);
  s.Drain();
  s.Left();
  s.Again(2);
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);
  s.Wait(30);
  s.Recover();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "sdma_stuck") << All(e);
  EXPECT_GE(e.verdict().confidence, 80);
  EXPECT_THAT(All(e), Not(HasSubstr(kNotSeen)));
}

// Silence at the end of a file that stops there, with a copy outstanding (the client spins).
TEST(TellWhereItEnds, InSilence) {
  Scene s;
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);
  s.Sleep(17);
  s.Snapshot(4, 0x3ff0, Scene::Bytes(1, 8));  // the proxy still looks
  s.file.whole = false;
  s.file.problem = "truncated";
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "incomplete") << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("the trace ends in silence for 17.0 s: SDMA0 stuck"));
  EXPECT_THAT(e.verdict().reason, HasSubstr("whether the client went on is not in the trace"));
}

// No wait was seen, so it is not called a hang; where the queue stands is told.
TEST(Killed, TellsWhatWasOutstanding) {
  Scene s;
  s.Copies();
  s.SdmaSubmit(2, 1);
  s.SdmaRead(s.sdma_wptr() - 44);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "killed") << All(e);
  EXPECT_THAT(Texts(e.verdict().evidence), HasSubstr("SDMA0 rptr 0x5c wptr 0x88, 44 bytes"));
}

// ---- mailboxes ----

void SmuMessage(Scene& s, uint32_t message, uint32_t argument = 0) {
  s.W("mmMP1_SMN_C2PMSG_90", 0);
  s.W("mmMP1_SMN_C2PMSG_82", argument);
  s.W("mmMP1_SMN_C2PMSG_66", message);
}

// psp-less numbers of smu_v13_0: 0xff failed, 0xfe unknown command, 0xfd prerequisite, 0xfc busy.
TEST(Mailbox, AnSmuThatSaysNoIsAlive) {
  for (const auto& [answer, text] :
       {std::pair(0xffu, "failed"), std::pair(0xfeu, "unknown command"),
        std::pair(0xfdu, "prerequisite"), std::pair(0xfcu, "busy")}) {
    Scene s;
    s.BootTo();
    SmuMessage(s, 6);
    s.Poll("mmMP1_SMN_C2PMSG_90", answer, 10);
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().rule, "smu_refused") << All(e);
    EXPECT_THAT(e.verdict().summary, HasSubstr(text));
    EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
    EXPECT_THAT(Texts(e.verdict().evidence), HasSubstr("power controller is alive"));
    EXPECT_THAT(All(e), Not(HasSubstr("no reset of the driver can reach it")));
  }
}

TEST(Mailbox, AnUnknownMessageIsNamedOnce) {
  for (const uint32_t answer : {0u, 0xfeu}) {
    Scene s;
    s.BootTo();
    SmuMessage(s, 0x77);
    s.Poll("mmMP1_SMN_C2PMSG_90", answer, 10);
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_THAT(e.verdict().summary, HasSubstr("message 0x77 "));
    EXPECT_THAT(e.verdict().summary, Not(HasSubstr("message 0x77 message")));
    EXPECT_EQ(e.verdict().advice, answer == 0 ? Advice::kReboot : Advice::kAmReset) << All(e);
  }
}

TEST(Mailbox, ARefusedModeOneResetLeavesNone) {
  Scene s;
  s.BootTo();
  s.W("mmMP1_SMN_C2PMSG_54", 0);
  s.W("mmMP1_SMN_C2PMSG_53", 0);
  s.W("mmMP1_SMN_C2PMSG_75", 2);
  s.Poll("mmMP1_SMN_C2PMSG_54", 0xff, 10);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "smu_refused") << All(e);
  EXPECT_EQ(e.verdict().advice, Advice::kPowerCycle);
}

TEST(Mailbox, RefusedAfterAModeOneReset) {
  Scene s;
  s.BootTo();
  s.Mode1Reset();
  SmuMessage(s, 6);
  s.Poll("mmMP1_SMN_C2PMSG_90", 0xff, 10);
  s.Closed();
  EXPECT_EQ(s.Explain().verdict().advice, Advice::kReboot);
}

// Late, but 1: no fault.
TEST(Mailbox, ALateAnswerIsAnAnswer) {
  Scene s;
  s.BootTo();
  SmuMessage(s, 6);
  s.Poll("mmMP1_SMN_C2PMSG_90", 0, 8);
  s.R("mmMP1_SMN_C2PMSG_90", 1);
  s.W("regSCRATCH_REG7", 0xa0000008);
  s.W("regSCRATCH_REG6", 1);
  s.Queues();
  s.SdmaSubmit(1, 0);
  s.Timeline(1);
  s.SdmaRead(s.sdma_wptr());
  s.Drain();
  s.Finish();
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "healthy") << All(e);
}

// The register reads all ones for 10 s: it is the link that fails, not the power controller.
TEST(Mailbox, AllOnesAreNoSilentSmu) {
  Scene s;
  s.BootTo();
  SmuMessage(s, 6);
  s.Poll("mmMP1_SMN_C2PMSG_90", 0xffffffff, 10);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().kind, "device_lost") << All(e);
  EXPECT_THAT(All(e), Not(HasSubstr("smu_dead")));
}

// A PSP command as the driver sends it; places: amd-boot, section 1.
void PspCommand(Scene& s, uint32_t id, uint32_t fw_type, std::optional<uint32_t> status,
                double seconds) {
  std::vector<uint8_t> command(0x400), frame(0x40);
  std::memcpy(command.data() + 8, &id, 4);
  std::memcpy(command.data() + 0x28, &fw_type, 4);
  s.R("regMP0_SMN_C2PMSG_67", 0);
  s.Write(0, 0x85000, command);
  const uint32_t fence = 1;
  std::memcpy(frame.data() + 0x14, &fence, 4);
  s.Write(0, 0x87000, frame);
  s.W("regMP0_SMN_C2PMSG_67", 16);
  const int reads = 20;
  for (int i = 0; i < reads; i++) {
    s.Read(0, 0x86000, 0);
    s.Sleep(seconds / reads);
  }
  if (!status) {
    s.Read(0, 0x86000, 0);
    return;
  }
  s.Read(0, 0x86000, fence);
  std::memcpy(command.data() + 0x360, &*status, 4);
  s.Read(0, 0x85000, command);
}

TEST(Mailbox, EveryPspStatusButZeroIsARefusal) {
  for (const uint32_t status : {1u, 4u, 0x16u, 0xffffu, 0xffff0005u, 0xfffffffeu}) {
    Scene s;
    s.BootTo();
    PspCommand(s, 6, 18, status, 0.001);
    s.Closed();
    const Explanation e = s.Explain();
    EXPECT_EQ(e.verdict().rule, "psp_refused") << All(e);
    EXPECT_THAT(e.verdict().summary, HasSubstr("status " + Hex(status)));
    EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
  }
}

TEST(Mailbox, APspThatNeverAnswers) {
  Scene s;
  s.BootTo();
  PspCommand(s, 0x21, 0, {}, 10);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_EQ(e.verdict().rule, "psp_dead") << All(e);
  EXPECT_THAT(e.verdict().summary, HasSubstr("did not finish AUTOLOAD_RLC within 10.0 s"));
  EXPECT_EQ(e.verdict().advice, Advice::kAmReset);
}

TEST(Mailbox, APspThatAnswersLateAndWell) {
  Scene s;
  s.BootTo();
  PspCommand(s, 0x21, 0, 0, 9.5);
  s.Closed();
  const Explanation e = s.Explain();
  EXPECT_THAT(All(e), Not(HasSubstr("psp_"))) << All(e);
  EXPECT_NE(e.verdict().kind, "hang");
}

}  // namespace
}  // namespace tg::explain
