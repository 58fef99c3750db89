#include "decoder/model/queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decoder/model/queue_state.h"
#include "tests/rings/fake_memory.h"
#include "tests/rings/hex.h"

namespace tg::model {
namespace {

using test::Append;
using test::Bytes;
using test::Dwords;
using test::FakeMemory;
using ::testing::HasSubstr;
using Seen = Queues::Seen;

constexpr uint64_t kRing = 0x10000000;

// Field report B07: 68 bytes of ring.
std::vector<uint8_t> B07Ring() {
  return Bytes(
      "080000d000100080000000008d010000ffffffff0400ff0f"
      "01000000ff0f00000000000000000010010000000000002001000000"
      "0500030040100080000000008e010000");
}

void SetUpSdma(Queues& queues, uint32_t rb_size, uint64_t ring_va, uint64_t call) {
  const auto write = [&](const char* name, uint32_t value) {
    queues.OnRegisterWrite(std::string("regSDMA0_QUEUE0_") + name, 0, value, call, call * 10);
  };
  write("RB_RPTR", 0);
  write("RB_RPTR_HI", 0);
  write("RB_WPTR", 0);
  write("RB_WPTR_HI", 0);
  write("RB_BASE", static_cast<uint32_t>(ring_va >> 8));
  write("RB_BASE_HI", static_cast<uint32_t>(ring_va >> 40));
  write("DOORBELL_OFFSET", 512u << 2);
  write("DOORBELL", 1u << 28);
  write("RB_CNTL", 1u | rb_size << 1);
}

class B07 : public ::testing::Test {
 protected:
  B07() {
    memory_.Map(kRing, 0, 0x100000);
    memory_.Map(0x80001000, 1, 0x1000);
  }
  // The signal at 0x80001000.
  void Signal(uint64_t value) {
    memory_.Write64(1, 0, value);
    queues_.OnSysmem(Seen::kClientRead, 1, 0, 8, 30, 300);
  }
  void Ring() {
    memory_.Write(0, 0x2480, B07Ring());
    queues_.OnSysmem(Seen::kClientWrote, 0, 0x2480, 68, 10, 100);
    queues_.OnDoorbell(0x800, 0x24c4, 8, 11, 110);
  }
  std::string Line() { return StateOf(queues_, 0).headline; }

  FakeMemory memory_;
  Queues queues_{memory_};
};

TEST_F(B07, StuckBehindAPoll) {
  SetUpSdma(queues_, 18, kRing, 1);
  Ring();
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x2480, 20, 200);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_WPTR", 0, 0x24c4, 21, 210);
  Signal(0xc3);
  EXPECT_EQ(Line(),
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; waiting: POLL_REGMEM "
            "[0x80001000] >= 397, memory holds 195");
  const QueueState state = StateOf(queues_, 0);
  EXPECT_EQ(state.kind, QueueState::Kind::kBusy);
  ASSERT_EQ(state.items.size(), 3u);
  EXPECT_TRUE(state.items[0].here);
  EXPECT_FALSE(state.items[1].here);
  EXPECT_EQ(state.items[0].ring_offset, 0x2480u);
  EXPECT_EQ(state.items[1].ring_offset, 0x2498u);
  EXPECT_EQ(state.items[2].packet.name, "FENCE");
  ASSERT_TRUE(state.stuck);
  EXPECT_EQ(state.stuck->op, "POLL_REGMEM");
  EXPECT_EQ(state.stuck->wants, "[0x80001000] >= 397");
  EXPECT_EQ(state.stuck->has, "195");
}

// The same without any set-up in the trace: engine and ring are told from the doorbell and the
// write before it.
TEST_F(B07, WithoutSetUp) {
  Ring();
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x2480, 20, 200);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_WPTR", 0, 0x24c4, 21, 210);
  Signal(0xc3);
  EXPECT_EQ(Line(),
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; waiting: POLL_REGMEM "
            "[0x80001000] >= 397, memory holds 195");
  EXPECT_THAT(StateOf(queues_, 0).notes,
              ::testing::Contains(HasSubstr("ring assumed to lie in region 0")));
}

TEST_F(B07, RingDrainedFenceNotSeen) {
  SetUpSdma(queues_, 18, kRing, 1);
  Ring();
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x24c4, 20, 200);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_WPTR", 0, 0x24c4, 21, 210);
  Signal(0xc3);
  const QueueState state = StateOf(queues_, 0);
  EXPECT_EQ(state.kind, QueueState::Kind::kNoFence);
  EXPECT_THAT(state.headline,
              ::testing::StartsWith("SDMA0 rptr 0x24c4 wptr 0x24c4, ring drained, fence not seen"));
  EXPECT_TRUE(state.outstanding());
}

TEST_F(B07, PointersNotRead) {
  SetUpSdma(queues_, 18, kRing, 1);
  Ring();
  EXPECT_THAT(Line(), HasSubstr("SDMA0 pointers not read by client; doorbell says 0x24c4"));
  EXPECT_EQ(StateOf(queues_, 0).kind, QueueState::Kind::kNoPointers);
  EXPECT_FALSE(StateOf(queues_, 0).rptr);
}

TEST_F(B07, NoSnapshotMeansNotObserved) {
  SetUpSdma(queues_, 18, kRing, 1);
  queues_.OnDoorbell(0x800, 0x24c4, 8, 11, 110);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x2480, 20, 200);
  EXPECT_EQ(Line(), "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes left; ring content not observed");
  EXPECT_FALSE(StateOf(queues_, 0).outstanding_packets);
  EXPECT_TRUE(StateOf(queues_, 0).items.empty());
}

TEST_F(B07, SignalNotObserved) {
  SetUpSdma(queues_, 18, kRing, 1);
  Ring();
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x2480, 20, 200);
  EXPECT_EQ(Line(),
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; waiting: POLL_REGMEM "
            "[0x80001000] >= 397, memory not observed");
}

TEST_F(B07, SatisfiedButNotSeen) {
  SetUpSdma(queues_, 18, kRing, 1);
  Ring();
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x2480, 20, 200);
  Signal(400);
  const QueueState state = StateOf(queues_, 0);
  ASSERT_TRUE(state.stuck);
  EXPECT_TRUE(state.stuck->satisfied);
  EXPECT_THAT(state.notes, ::testing::Contains(HasSubstr("holds in memory but was not seen")));
}

// ---- field report B08 --------------------------------------------------------------------------

class B08 : public ::testing::Test {
 protected:
  // A queue whose client we joined late: no pointers in its set-up.
  void Prepare(uint32_t rb_size) {
    queues_.OnRegisterWrite("regSDMA0_QUEUE0_RB_BASE", 0, kRing >> 8, 1, 10);
    queues_.OnRegisterWrite("regSDMA0_QUEUE0_RB_CNTL", 0, 1u | rb_size << 1, 2, 20);
    queues_.OnRegisterWrite("regSDMA0_QUEUE0_DOORBELL_OFFSET", 0, 512u << 2, 3, 30);
  }
  FakeMemory memory_;
  Queues queues_{memory_};
};

TEST_F(B08, OffsetsWarmStartAndDeltas) {
  Prepare(18);  // 4 << 18 = 0x100000
  for (uint64_t value : {0x0c5416c0, 0x0c541780, 0x0c541840}) {
    queues_.OnDoorbell(0x800, value, 8, 10 + value % 7, 100);
  }
  const Queue& queue = queues_.queues()[0];
  EXPECT_EQ(queue.ring_bytes, 0x100000u);
  ASSERT_EQ(queue.submissions.size(), 3u);
  EXPECT_EQ(queue.RingOffset(queue.submissions[0].end), 0x416c0u);
  EXPECT_EQ(queue.RingOffset(queue.submissions[1].end), 0x41780u);
  EXPECT_EQ(queue.RingOffset(queue.submissions[2].end), 0x41840u);
  EXPECT_FALSE(queue.submissions[0].begin);
  EXPECT_EQ(queue.submissions[1].end - *queue.submissions[1].begin, 0xc0u);
  EXPECT_EQ(queue.submissions[2].end - *queue.submissions[2].begin, 0xc0u);
  EXPECT_TRUE(queue.warm_start);
  const auto warnings = queues_.warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].text, "SDMA0: first doorbell 0x0c5416c0 (ring offset 0x416c0): warm start");
}

TEST_F(B08, Overrun) {
  Prepare(18);
  queues_.OnDoorbell(0x800, 0x0c541840, 8, 10, 100);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x0c541840, 11, 110);
  queues_.OnDoorbell(0x800, 0x0c642840, 8, 12, 120);
  const auto warnings = queues_.warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[1].rule, "ring-overrun");
  EXPECT_EQ(warnings[1].call, 12u);
  EXPECT_THAT(
      warnings[1].text,
      HasSubstr("OVERRUN: doorbell 0x0c642840 is 0x101000 bytes past the read pointer 0x0c541840"));
  EXPECT_TRUE(StateOf(queues_, 0).overrun);
  EXPECT_THAT(StateOf(queues_, 0).headline, HasSubstr("OVERRUN"));
}

TEST_F(B08, NewerReadPointerTakesAnOverrunBack) {
  Prepare(18);
  queues_.OnDoorbell(0x800, 0x0c541840, 8, 10, 100);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x0c541840, 11, 110);
  queues_.OnDoorbell(0x800, 0x0c642840, 8, 12, 120);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x0c642000, 13, 130);
  EXPECT_EQ(queues_.warnings().size(), 1u);
  EXPECT_FALSE(StateOf(queues_, 0).overrun);
}

TEST_F(B08, WrapIsPaddingThenPackets) {
  Prepare(22);  // 16 MiB
  memory_.Map(kRing, 0, 16 << 20);
  queues_.OnDoorbell(0x800, 0x0ffffc0, 8, 10, 100);
  auto packets = Dwords("d0000008 0100fff0 00002000 00000007 ffffffff 0fff0004");
  Append(packets, Dwords("00000006 00000000 00000006 00000000 00000006 00000000 00000000 00000000 "
                         "00000000 00000000"));
  ASSERT_EQ(packets.size(), 0x40u);
  memory_.Write(0, 0xffffc0, std::vector<uint8_t>(0x40));
  memory_.Write(0, 0, packets);
  queues_.OnSysmem(Seen::kClientWrote, 0, 0xffffc0, 0x40, 11, 110);
  queues_.OnSysmem(Seen::kClientWrote, 0, 0, 0x40, 12, 120);
  queues_.OnDoorbell(0x800, 0x1000040, 8, 13, 130);
  const Queue& queue = queues_.queues()[0];
  const Submission& wrapped = queue.submissions[1];
  EXPECT_EQ(wrapped.content, Submission::Content::kObserved);
  EXPECT_EQ(wrapped.end - *wrapped.begin, 0x80u);
  EXPECT_EQ(wrapped.packets, 4u);  // POLL, three TRAPs; NOPs are folded
  EXPECT_EQ(wrapped.not_packets, 0u);
  queues_.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0x0ffffc0, 14, 140);
  const QueueState state = StateOf(queues_, 0);
  ASSERT_EQ(state.items.size(), 6u);
  EXPECT_EQ(state.items[0].kind, amd::WalkItem::Kind::kPadding);
  EXPECT_EQ(state.items[0].size, 0x40u);
  EXPECT_EQ(state.items[1].ring_offset, 0u);
  EXPECT_EQ(state.items[1].packet.name, "POLL_REGMEM");
  EXPECT_EQ(state.items[5].kind, amd::WalkItem::Kind::kPadding);
}

TEST_F(B08, GoingBackwards) {
  Prepare(18);
  queues_.OnDoorbell(0x800, 0x5000, 8, 10, 100);
  queues_.OnDoorbell(0x800, 0x44, 8, 11, 110);
  const auto warnings = queues_.warnings();
  ASSERT_GE(warnings.size(), 2u);
  EXPECT_EQ(warnings[1].rule, "doorbell-backwards");
  EXPECT_EQ(warnings[1].text, "SDMA0: doorbell 0x44 after 0x5000: restart or second client");
}

// ---- set-up ------------------------------------------------------------------------------------

TEST(Queues, FreshQueueStartsAtZeroAndIsNotWarm) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  Queues queues(memory);
  SetUpSdma(queues, 22, kRing, 5);
  const Queue& queue = queues.queues()[0];
  EXPECT_EQ(queue.name, "SDMA0");
  EXPECT_EQ(queue.ring_va, kRing);
  EXPECT_EQ(queue.ring_bytes, 16u << 20);
  EXPECT_EQ(queue.doorbell_offset, 0x800u);
  EXPECT_EQ(queue.setup_call, 5u);
  EXPECT_EQ(StateOf(queues, 0).kind, QueueState::Kind::kUnused);
  queues.OnDoorbell(0x800, 0x44, 8, 6, 60);
  EXPECT_FALSE(queue.warm_start);
  EXPECT_TRUE(queues.warnings().empty());
  EXPECT_EQ(queue.submissions[0].begin, 0u);
}

// amd-structs section 10: the words of the HQD, by register writes under GRBM_GFX_CNTL.
void SetUpCompute(Queues& queues, uint64_t ring_va, uint32_t xcc, uint32_t queue, bool aql,
                  uint64_t call) {
  const auto write = [&](const char* name, uint32_t value) {
    queues.OnRegisterWrite(name, xcc, value, call, call * 10);
  };
  write("regGRBM_GFX_CNTL", 1u << 2 | queue << 8);
  write("regCP_HQD_ACTIVE", 0);
  write("regCP_HQD_PQ_BASE", static_cast<uint32_t>(ring_va >> 8));
  write("regCP_HQD_PQ_BASE_HI", static_cast<uint32_t>(ring_va >> 40));
  write("regCP_HQD_PQ_RPTR", 0);
  write("regCP_HQD_PQ_RPTR_REPORT_ADDR", 0x20000080);
  write("regCP_HQD_PQ_RPTR_REPORT_ADDR_HI", 0);
  write("regCP_HQD_PQ_WPTR_POLL_ADDR", 0x20000038);
  write("regCP_HQD_PQ_WPTR_POLL_ADDR_HI", 0);
  write("regCP_HQD_PQ_DOORBELL_CONTROL", 0x40000018);
  write("regCP_HQD_PQ_CONTROL", 0x515);
  write("regCP_HQD_AQL_CONTROL", aql);
  write("regCP_HQD_PQ_WPTR_LO", 0);
  write("regCP_HQD_PQ_WPTR_HI", 0);
  write("regCP_HQD_ACTIVE", 1);
  write("regGRBM_GFX_CNTL", 0);
}

TEST(Queues, ComputePm4) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  memory.Map(0x20000000, 1, 0x4000);
  memory.Map(0x200001000000, 2, 0x10000);  // signals
  Queues queues(memory);
  queues.SetVersions(7, 12);
  SetUpCompute(queues, kRing, 0, 0, false, 3);
  ASSERT_EQ(queues.queues().size(), 1u);
  const Queue& queue = queues.queues()[0];
  EXPECT_EQ(queue.name, "COMPUTE0");
  EXPECT_EQ(queue.ring_va, kRing);
  EXPECT_EQ(queue.ring_bytes, 16u << 20);  // queue_size 21: 4 << 22
  EXPECT_EQ(queue.rptr_va, 0x20000080u);
  EXPECT_EQ(queue.wptr_va, 0x20000038u);
  EXPECT_EQ(queue.doorbell_offset, 0x18u);
  EXPECT_EQ(queue.unit(), 4u);

  // wait timeline >= 2; barrier; signal 3
  auto ring = Dwords("c0053c00 00000015 0100fff0 00002000 00000002 ffffffff 00000004");
  Append(ring, Dwords("c0065800 00000000 ffffffff ffffffff 00000000 00000000 00000000 0000c3f1"));
  Append(ring, Dwords("c0064900 0070f514 20000000 0100fff0 00002000 00000003 00000000 00000000"));
  memory.Write(0, 0, ring);
  memory.Write64(2, 0xfff0, 1);
  memory.Write64(1, 0x80, 0);
  queues.OnDoorbell(0x18, ring.size() / 4, 8, 10, 100);
  queues.OnSysmem(Seen::kStored, 0, 0, ring.size(), 10, 100);
  EXPECT_EQ(queue.submissions[0].content, Submission::Content::kPending);
  memory.Write64(1, 0x38, ring.size() / 4);
  queues.OnSysmem(Seen::kStored, 1, 0x38, 8, 10, 100);
  EXPECT_EQ(queue.submissions[0].content, Submission::Content::kObserved);
  EXPECT_EQ(queue.submissions[0].packets, 3u);
  queues.OnSysmem(Seen::kStored, 1, 0x80, 8, 11, 110);
  EXPECT_EQ(StateOf(queues, 0).headline,
            "COMPUTE0 rptr 0x0 wptr 0x17, 92 bytes / 3 packets left; waiting: WAIT_REG_MEM "
            "[0x20000100fff0] >= 2, memory holds 1");

  // All fetched, still waiting: the pointer alone would call it done.
  memory.Write64(1, 0x80, 0x17);
  queues.OnSysmem(Seen::kStored, 1, 0x80, 8, 12, 120);
  EXPECT_EQ(StateOf(queues, 0).headline,
            "COMPUTE0 rptr 0x17 wptr 0x17, ring drained, fence not seen: [0x20000100fff0] should "
            "be 3, memory holds 1; waiting: WAIT_REG_MEM [0x20000100fff0] >= 2, memory holds 1");
  EXPECT_THAT(
      StateOf(queues, 0).notes,
      ::testing::Contains("[0x20000100fff0] >= 2: COMPUTE0 submission 1 (doorbell 0x17, call 10)"));

  // The signal arrives.
  memory.Write64(2, 0xfff0, 3);
  queues.OnSysmem(Seen::kStored, 2, 0xfff0, 8, 13, 130);
  EXPECT_EQ(queue.submissions[0].retired_call, 13u);
  EXPECT_EQ(StateOf(queues, 0).headline, "COMPUTE0 rptr 0x17 wptr 0x17, idle");
}

TEST(Queues, AqlOnSeveralXccs) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  memory.Map(0x20000000, 1, 0x4000);
  memory.Map(0x200000ab0000, 2, 0x1000);
  memory.Map(0x200001000000, 3, 0x10000);
  Queues queues(memory);
  queues.SetVersions(4, 9);
  for (uint32_t xcc = 0; xcc < 8; ++xcc) SetUpCompute(queues, kRing, xcc, 1, true, 3 + xcc);
  ASSERT_EQ(queues.queues().size(), 1u);
  const Queue& queue = queues.queues()[0];
  EXPECT_EQ(queue.name, "COMPUTE0");
  EXPECT_EQ(queue.xccs, 8u);
  EXPECT_EQ(queue.format.format, amd::RingFormat::kAql);
  // One vendor packet whose PM4 signals 7; the doorbell names the last packet's index.
  auto ring = Dwords("00011500 c0023f00 00ab0000 00002000 00800008 0000000a");
  ring.resize(64);
  memory.Write(0, 0, ring);
  memory.Write(2, 0,
               Dwords("c0064900 0070f514 20000000 0100fff0 00002000 00000007 00000000 00000000"));
  memory.Write64(1, 0x38, 1);
  queues.OnSysmem(Seen::kStored, 1, 0x38, 8, 19, 190);
  queues.OnDoorbell(0x18, 0, 8, 20, 200);
  ASSERT_EQ(queue.submissions.size(), 1u);
  EXPECT_EQ(queue.submissions[0].end, 64u);
  EXPECT_EQ(queue.submissions[0].content, Submission::Content::kObserved);
  ASSERT_EQ(queue.submissions[0].signals.size(), 1u);
  EXPECT_EQ(queue.submissions[0].signals[0].value, 7u);
}

TEST(Queues, MqdAloneMakesAQueue) {
  FakeMemory memory;
  Queues queues(memory);
  std::vector<uint8_t> mqd(0x800);
  const auto put = [&](size_t at, uint32_t value) {
    for (int i = 0; i < 4; ++i) mqd[at + i] = static_cast<uint8_t>(value >> (8 * i));
  };
  put(0, 0xC0310800);
  put(0x220, kRing >> 8);
  put(0x22c, 0x20000080);
  put(0x234, 0x20000038);
  put(0x23c, 0x40000018);
  put(0x244, 0x515);
  queues.OnVramWrite(0x9b000, mqd, 4);
  ASSERT_EQ(queues.queues().size(), 1u);
  EXPECT_EQ(queues.queues()[0].name, "COMPUTE0");
  EXPECT_EQ(queues.queues()[0].ring_va, kRing);
  EXPECT_EQ(queues.queues()[0].ring_bytes, 16u << 20);
  put(0, 0xC0310801);
  queues.OnVramWrite(0x9c000, mqd, 4);
  EXPECT_EQ(queues.queues().size(), 1u);
}

TEST(Queues, Mi300Engines) {
  FakeMemory memory;
  Queues queues(memory);
  queues.SetVersions(4, 9);
  queues.OnRegisterWrite("regSDMA_GFX_RB_BASE", 4, kRing >> 8, 1, 1);
  queues.OnRegisterWrite("regSDMA_GFX_DOORBELL_OFFSET", 4, (256 + 10) * 2 << 2, 1, 1);
  queues.OnRegisterWrite("regSDMA_GFX_RB_CNTL", 4, 1u | 22u << 1, 1, 1);
  ASSERT_EQ(queues.queues().size(), 1u);
  EXPECT_EQ(queues.queues()[0].name, "SDMA4");
  EXPECT_EQ(queues.queues()[0].doorbell_offset, 0x850u);
}

// Recovery sets the compute queue up again with pointers 0.
TEST(Queues, SecondSetUpStartsAnew) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  Queues queues(memory);
  SetUpSdma(queues, 22, kRing, 1);
  queues.OnDoorbell(0x800, 0x1000, 8, 2, 20);
  SetUpSdma(queues, 22, kRing, 3);
  queues.OnDoorbell(0x800, 0x44, 8, 4, 40);
  const Queue& queue = queues.queues()[0];
  EXPECT_EQ(queue.epochs, 2u);
  EXPECT_TRUE(queues.warnings().empty());
  EXPECT_EQ(queue.submissions[1].begin, 0u);
  EXPECT_EQ(queue.submissions[0].content, Submission::Content::kNotObserved);
}

TEST(Queues, UnknownDoorbellMakesAnUnknownQueue) {
  FakeMemory memory;
  Queues queues(memory);
  queues.OnDoorbell(0x1f0, 5, 8, 1, 10);
  ASSERT_EQ(queues.queues().size(), 1u);
  EXPECT_EQ(queues.queues()[0].name, "DOORBELL@0x1f0");
  EXPECT_FALSE(queues.queues()[0].known_format);
  EXPECT_FALSE(StateOf(queues, 0).ring_observed);
}

// A fresh ring begins with the server's address table: not packets.
TEST(Queues, AddressTableInAFreshRing) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  Queues queues(memory);
  SetUpSdma(queues, 22, kRing, 1);
  memory.Write(
      0, 0,
      Dwords("01004000 00000001 01000000 00000000 00000000 00000000 00000000 00000000"
             "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"));
  queues.OnDoorbell(0x800, 0x44, 8, 2, 20);
  const Submission& submission = queues.queues()[0].submissions[0];
  EXPECT_EQ(submission.packets, 0u);
  EXPECT_EQ(submission.not_packets, 1u);
}

// An indirect buffer that points at itself, and one that points at a chain of others.
TEST(Queues, SelfReferencingBuffers) {
  FakeMemory memory;
  memory.Map(kRing, 0, 16 << 20);
  memory.Map(0x200000ab0000, 2, 0x10000);
  memory.Map(0x20000000, 1, 0x4000);
  Queues queues(memory);
  SetUpCompute(queues, kRing, 0, 0, false, 1);
  memory.Write(0, 0, Dwords("c0023f00 00ab0000 00002000 00800004"));
  memory.Write(2, 0, Dwords("c0023f00 00ab0000 00002000 00800004"));
  memory.Write64(1, 0x38, 4);
  queues.OnSysmem(Seen::kStored, 1, 0x38, 8, 1, 1);
  queues.OnDoorbell(0x18, 4, 8, 2, 20);
  EXPECT_EQ(queues.queues()[0].submissions[0].packets, 1u);
  const QueueState state = StateOf(queues, 0);
  ASSERT_EQ(state.items.size(), 2u);
  EXPECT_EQ(state.items[0].buffer, ReachedBuffer::State::kRead);
  EXPECT_EQ(state.items[1].buffer, ReachedBuffer::State::kAgain);
}

TEST(Queues, PointersOutsideTheRing) {
  FakeMemory memory;
  memory.Map(kRing, 0, 0x1000);  // the region is smaller than the ring
  Queues queues(memory);
  SetUpSdma(queues, 22, kRing, 1);
  queues.OnDoorbell(0x800, 0x2000, 8, 2, 20);
  EXPECT_EQ(StateOf(queues, 0).ring_observed, false);
  queues.OnRegisterRead("regSDMA0_QUEUE0_RB_RPTR", 0, 0xffffff00, 3, 30);
  const QueueState state = StateOf(queues, 0);
  EXPECT_THAT(state.notes, ::testing::Contains(HasSubstr("past the last doorbell")));
  queues.OnDoorbell(0x800, 0xffffffffffffff00, 8, 4, 40);
  EXPECT_EQ(queues.warnings().back().rule, "doorbell-absurd");
}

TEST(Queues, BoundedHistory) {
  FakeMemory memory;
  Queues queues(memory);
  SetUpSdma(queues, 22, kRing, 1);
  for (uint64_t i = 1; i <= kMaxSubmissions + 100; ++i) {
    queues.OnDoorbell(0x800, i * 0x44, 8, i, i);
  }
  for (uint64_t i = 0; i < 2 * kMaxQueues; ++i) queues.OnDoorbell(0x2000 + i * 8, 1, 8, i, i);
  EXPECT_EQ(queues.queues()[0].submissions.size(), kMaxSubmissions);
  EXPECT_EQ(queues.queues()[0].submissions_total, kMaxSubmissions + 100);
  EXPECT_LE(queues.queues().size(), kMaxQueues);
}

TEST(QueueSetup, Names) {
  EXPECT_EQ(ParseQueueRegister("regSDMA1_QUEUE2_RB_WPTR_HI", 0)->engine, 1u);
  EXPECT_EQ(ParseQueueRegister("regSDMA1_QUEUE2_RB_WPTR_HI", 0)->queue, 2u);
  EXPECT_EQ(ParseQueueRegister("regSDMA1_QUEUE2_RB_WPTR_HI", 0)->reg, QueueReg::kWptrHi);
  EXPECT_EQ(ParseQueueRegister("regSDMA_GFX_RB_BASE", 7)->engine, 7u);
  EXPECT_FALSE(ParseQueueRegister("regSDMA0_WATCHDOG_CNTL", 0));
  EXPECT_FALSE(ParseQueueRegister("regSDMA0_QUEUE_RB_BASE", 0));
  EXPECT_FALSE(ParseQueueRegister("regCP_STAT", 0));
  EXPECT_FALSE(ParseQueueRegister("", 0));
  EXPECT_FALSE(ParseQueueRegister("regCP_HQD_EOP_RPTR", 0));
  EXPECT_EQ(ParseQueueRegister("regCP_HQD_PQ_CONTROL", 3)->engine, 3u);
  EXPECT_TRUE(IsQueueSelect("regGRBM_GFX_CNTL"));
  const QueueSelect select = DecodeQueueSelect(1u << 2 | 1u << 8);
  EXPECT_EQ(select.me, 1);
  EXPECT_EQ(select.queue, 1);
}

}  // namespace
}  // namespace tg::model
