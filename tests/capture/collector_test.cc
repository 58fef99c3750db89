#include "proxy/capture/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decoder/model/queue_state.h"
#include "tests/rings/fake_memory.h"
#include "tests/rings/hex.h"

namespace tg::proxy {
namespace {

using model::Queues;
using model::Submission;
using test::Append;
using test::Dwords;

constexpr uint64_t kRing = 0x200000000000, kPage = 0x200010000000, kSignals = 0x20000100c000;
constexpr uint32_t kRingRegion = 0, kPageRegion = 1, kSignalRegion = 2, kBufferRegion = 3;
constexpr uint64_t kRingBytes = 1 << 20;

// One submission as tinygrad writes it: wait for n - 1, copy, signal n.
std::vector<uint8_t> Submission68(uint32_t n) {
  auto dword = [](std::vector<uint8_t>& to, uint32_t v) {
    for (int i = 0; i < 4; ++i) to.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  std::vector<uint8_t> out;
  for (uint32_t v : {0xd0000008u, 0x0100fff0u, 0x00002000u, n - 1, 0xffffffffu, 0x0fff0004u,
                     0x00000001u, 0x00003fffu, 0u, 0x01400000u, 0x00002000u, 0x01010000u,
                     0x00002000u, 0x00030005u, 0x0100fff0u, 0x00002000u, n}) {
    dword(out, v);
  }
  return out;
}

class CollectorTest : public ::testing::Test {
 protected:
  CollectorTest() {
    Region(kRingRegion, kRing, kRingBytes);
    Region(kPageRegion, kPage, 0x4000);
    Region(kSignalRegion, kSignals, 0x4000);
    Region(kBufferRegion, 0x200000ab0000, 0x10000);
    const auto write = [&](const char* name, uint32_t value) {
      queues_.OnRegisterWrite(std::string("regSDMA0_QUEUE0_") + name, 0, value, 1, 1);
    };
    write("RB_WPTR", 0);
    write("RB_WPTR_HI", 0);
    write("RB_BASE", static_cast<uint32_t>(kRing >> 8));
    write("RB_BASE_HI", static_cast<uint32_t>(kRing >> 40));
    write("RB_RPTR_ADDR_LO", static_cast<uint32_t>(kPage + 0x80));
    write("RB_RPTR_ADDR_HI", static_cast<uint32_t>(kPage >> 32));
    write("RB_WPTR_POLL_ADDR_LO", static_cast<uint32_t>(kPage + 0x38));
    write("RB_WPTR_POLL_ADDR_HI", static_cast<uint32_t>(kPage >> 32));
    write("DOORBELL_OFFSET", 512u << 2);
    write("RB_CNTL", 1u | 18u << 1);
  }
  void Region(uint32_t index, uint64_t va, uint64_t bytes) {
    live_[index] = std::vector<uint8_t>(bytes);
    trace_.Map(va, index, bytes);
    collector_.AddRegion(index, bytes);
  }
  void Live(uint32_t region, uint64_t offset, const std::vector<uint8_t>& bytes) {
    std::copy(bytes.begin(), bytes.end(), live_[region].begin() + static_cast<ptrdiff_t>(offset));
  }
  void Live64(uint32_t region, uint64_t offset, uint64_t value) {
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
    Live(region, offset, bytes);
  }
  size_t Copy(uint32_t region, uint64_t offset, std::span<uint8_t> to) {
    if (on_copy_) on_copy_(region, offset);
    const auto& bytes = live_[region];
    if (offset >= bytes.size()) return 0;
    const size_t n = std::min<size_t>(to.size(), bytes.size() - offset);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), n, to.begin());
    return n;
  }
  // The client: ring bytes, pointer; its doorbell reaches the proxy with Doorbell().
  void Write(const std::vector<uint8_t>& packets) {
    for (size_t i = 0; i < packets.size(); ++i) {
      live_[kRingRegion][(put_ + i) % kRingBytes] = packets[i];
    }
    put_ += packets.size();
    Live64(kPageRegion, 0x38, put_);
  }
  void Doorbell(uint64_t value) {
    runs_.clear();
    bytes_ = 0;
    ++call_;
    queues_.OnDoorbell(0x800, value, 8, call_, call_ * 100);
    collector_.OnDoorbell(0);
  }
  const Submission& Last() const { return queues_.queues()[0].submissions.back(); }

  std::map<uint32_t, std::vector<uint8_t>> live_;
  test::FakeMemory trace_;  // what a reader of the trace knows
  Queues queues_{trace_};
  std::vector<std::string> runs_;
  uint64_t bytes_ = 0;
  bool torn_ = false;
  uint64_t call_ = 10, put_ = 0;
  std::function<void(uint32_t, uint64_t)> on_copy_;
  ChangeStore store_{[this](uint32_t region, uint64_t offset, std::span<uint8_t> out) {
                       model::Place place;
                       place.kind = model::Place::Kind::kSysmem;
                       place.region = region;
                       place.offset = offset;
                       return trace_.ReadPlace(place, out);
                     },
                     [this](const StoredRun& run) {
                       std::vector<uint8_t> data(run.data.begin(), run.data.end());
                       if (data.empty()) data.resize(run.size);
                       trace_.Write(run.region, run.offset, data);
                       runs_.push_back(std::to_string(run.region) + "+" +
                                       std::to_string(run.offset) + ":" + std::to_string(run.size));
                       bytes_ += run.data.size();
                       torn_ = torn_ || run.torn;
                       queues_.OnSysmem(Queues::Seen::kStored, run.region, run.offset, run.size,
                                        call_, call_ * 100);
                     }};
  Collector collector_{
      queues_, [this](uint32_t r, uint64_t o, std::span<uint8_t> to) { return Copy(r, o, to); },
      store_, false};
  using Runs = std::vector<std::string>;
};

TEST_F(CollectorTest, RingWordsThenPointersWriteLast) {
  Live64(kPageRegion, 0x80, 0x24);
  Live64(kSignalRegion, 0x3ff0, 0);
  Write(Submission68(1));
  Doorbell(0x44);
  EXPECT_EQ(runs_, (Runs{"0+0:68", "2+16368:8", "1+128:8", "1+56:8"}));
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_EQ(Last().packets, 3u);
  ASSERT_EQ(Last().signals.size(), 1u);
  EXPECT_EQ(Last().signals[0].value, 1u);
  EXPECT_EQ(queues_.queues()[0].rptr_memory.raw, 0x24u);
  EXPECT_EQ(queues_.queues()[0].wptr_memory.raw, 0x44u);
}

// --sysmem full: also what the copies read, 16 KiB from a staging buffer here.
TEST_F(CollectorTest, FullKeepsTheSourcesOfCopies) {
  constexpr uint32_t kStaging = 7;
  Region(kStaging, 0x200001400000, 0x10000);
  std::vector<uint8_t> content(0x4000);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<uint8_t>(i * 7 + i / 256);
  Live(kStaging, 0, content);
  const auto known = [&] {
    model::Place place;
    place.kind = model::Place::Kind::kSysmem;
    place.region = kStaging;
    std::vector<uint8_t> out(content.size());
    return trace_.ReadPlace(place, out) && out == content;
  };
  Write(Submission68(1));
  Doorbell(0x44);
  EXPECT_FALSE(known()) << "rings alone";

  Collector full(
      queues_, [this](uint32_t r, uint64_t o, std::span<uint8_t> to) { return Copy(r, o, to); },
      store_, true);
  full.AddRegion(kStaging, 0x10000);
  content[5] ^= 0xff;
  Live(kStaging, 0, content);
  Write(Submission68(2));
  ++call_;
  queues_.OnDoorbell(0x800, 0x88, 8, call_, call_ * 100);
  full.OnDoorbell(0);
  EXPECT_TRUE(known());
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
}

TEST_F(CollectorTest, NothingIsStoredTwice) {
  Write(Submission68(1));
  Doorbell(0x44);
  Live64(kSignalRegion, 0x3ff0, 1);
  Live64(kPageRegion, 0x80, 0x44);
  Write(Submission68(2));
  Doorbell(0x88);
  EXPECT_EQ(runs_, (Runs{"0+68:68", "2+16368:8", "1+128:8", "1+56:8"}));
  EXPECT_TRUE(queues_.queues()[0].submissions[0].retired_call);
  // Small regions whole (the rest of their pages was never stored), then nothing any more.
  collector_.Snapshot(StoreWhy::kStall);
  runs_.clear();
  collector_.Snapshot(StoreWhy::kStall);
  EXPECT_EQ(runs_, Runs{});
  Doorbell(0x88);
  EXPECT_EQ(runs_, Runs{});
}

// Content bytes of a typical submission: the issue allows 1.5 times the ring bytes plus 200, packet
// heads included (about 20 bytes each).
TEST_F(CollectorTest, CostOfASubmission) {
  uint64_t total = 0;
  for (uint32_t n = 1; n <= 1000; ++n) {
    Live64(kSignalRegion, 0x3ff0, n - 1);
    Live64(kPageRegion, 0x80, put_);
    Write(Submission68(n));
    Doorbell(put_);
    total += bytes_ + 25 * runs_.size();
    ASSERT_EQ(Last().content, Submission::Content::kObserved) << n;
  }
  EXPECT_LE(total, 1000u * (68 * 3 / 2 + 200));
}

TEST_F(CollectorTest, AcrossTheRingsEnd) {
  const uint64_t start = kRingBytes - 0x40;
  put_ = start;
  queues_.OnDoorbell(0x800, start, 8, 11, 1);
  Live64(kPageRegion, 0x80, start);
  collector_.OnDoorbell(0);
  auto packets = std::vector<uint8_t>(0x40);  // padding, then the packets at offset 0
  Append(packets, Submission68(1));
  Write(packets);
  Doorbell(put_);
  EXPECT_THAT(runs_, ::testing::Contains("0+0:68"));
  EXPECT_THAT(runs_, ::testing::Contains("0+" + std::to_string(start) + ":64"));
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_EQ(Last().packets, 3u);
  EXPECT_EQ(Last().not_packets, 0u);
}

// The client is ahead: two submissions are written when the first doorbell comes by.
TEST_F(CollectorTest, PointerAheadOfTheDoorbell) {
  Write(Submission68(1));
  Write(Submission68(2));
  Doorbell(0x44);
  EXPECT_EQ(runs_.front(), "0+0:136");
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_EQ(Last().signals[0].value, 1u);
  Doorbell(0x88);
  EXPECT_EQ(runs_, Runs{});
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_EQ(Last().signals[0].value, 2u);
}

// A lost doorbell: the pointer word moved, and nobody rang.
TEST_F(CollectorTest, SnapshotTakesWhatWasNotAnnounced) {
  Write(Submission68(1));
  Doorbell(0x44);
  Write(Submission68(2));
  collector_.Snapshot(StoreWhy::kEnd);
  EXPECT_THAT(runs_, ::testing::Contains("0+68:68"));
  const auto state = StateOf(queues_, 0);
  EXPECT_THAT(state.notes, ::testing::Contains(::testing::HasSubstr(
                               "write pointer in memory is 0x88, the last doorbell 0x44")));
}

// A snapshot's page must not promise ring bytes that are not stored.
TEST_F(CollectorTest, PointerWordInAPageIsTheCapturedOne) {
  Write(Submission68(1));
  Doorbell(0x44);
  // The client goes on while the snapshot is being taken: after the ring, before the pages.
  on_copy_ = [this](uint32_t region, uint64_t offset) {
    if (region != kPageRegion || offset != 0) return;
    on_copy_ = nullptr;
    Write(Submission68(2));
  };
  collector_.Snapshot(StoreWhy::kSignal);
  EXPECT_EQ(queues_.queues()[0].wptr_memory.raw, 0x44u);
  Doorbell(0x88);
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_EQ(Last().signals[0].value, 2u);
}

TEST_F(CollectorTest, TornCopiesAreRetriedThenMarked) {
  Write(Submission68(1));
  int changes = 1;
  on_copy_ = [&](uint32_t region, uint64_t) {
    if (region == kRingRegion && changes-- > 0) live_[kRingRegion][20] ^= 0xff;
  };
  Doorbell(0x44);
  EXPECT_FALSE(torn_);
  on_copy_ = [&](uint32_t region, uint64_t) {
    if (region == kRingRegion) live_[kRingRegion][68 + 20] ^= 0xff;
  };
  Write(Submission68(2));
  Doorbell(0x88);
  EXPECT_TRUE(torn_);
  EXPECT_GE(collector_.torn(), 1u);
}

TEST_F(CollectorTest, OvertakenWhileCopyingIsTorn) {
  Write(Submission68(1));
  on_copy_ = [this](uint32_t region, uint64_t) {
    if (region == kRingRegion) Live64(kPageRegion, 0x38, kRingBytes + 0x100);
  };
  Doorbell(0x44);
  EXPECT_TRUE(torn_);
}

TEST_F(CollectorTest, RegionThatShrank) {
  Write(Submission68(1));
  live_[kRingRegion].resize(32);
  Doorbell(0x44);
  EXPECT_NE(Last().content, Submission::Content::kObserved);
  queues_.OnEnd(99, 99);
  EXPECT_EQ(Last().content, Submission::Content::kNotObserved);
  EXPECT_FALSE(StateOf(queues_, 0).ring_observed);
}

TEST_F(CollectorTest, IndirectBuffersAreStoredOnce) {
  auto packets = Dwords("00000004 00ab0000 00002000 00000004 00000000 00000000");
  Live(kBufferRegion, 0, Dwords("00030005 0100fff0 00002000 00000009"));
  Write(packets);
  Doorbell(0x18);
  EXPECT_THAT(runs_, ::testing::Contains("3+0:16"));
  EXPECT_THAT(runs_, ::testing::Contains("2+16368:8"));
  EXPECT_EQ(Last().signals[0].value, 9u);
  Write(packets);
  Doorbell(0x30);
  EXPECT_THAT(runs_, ::testing::Not(::testing::Contains("3+0:16")));
  // One that points at itself ends.
  Live(kBufferRegion, 0, Dwords("00000004 00ab0000 00002000 00000006 00000000 00000000"));
  Write(packets);
  Doorbell(0x48);
  EXPECT_THAT(runs_, ::testing::Contains("3+0:16"));
  EXPECT_EQ(Last().packets, 1u);
}

TEST_F(CollectorTest, UnknownQueueFallsBackToPages) {
  queues_.OnDoorbell(0x1f0, 7, 8, 11, 1);
  const auto index = queues_.FindByDoorbell(0x1f0);
  ASSERT_TRUE(index);
  collector_.OnDoorbell(*index);
  runs_.clear();
  live_[kSignalRegion][100] = 1;
  live_[kBufferRegion][0x5000] = 1;
  collector_.OnDoorbell(*index);
  EXPECT_THAT(runs_, ::testing::Contains("2+96:8"));
  EXPECT_THAT(runs_, ::testing::Contains("3+20480:8"));
}

TEST_F(CollectorTest, PointersOutsideTheRing) {
  Write(Submission68(1));
  Doorbell(0x44);
  Live64(kPageRegion, 0x38, 0xffffffffffffffff);
  Live64(kPageRegion, 0x80, 0x123456789abcdef0);
  Doorbell(0x44 + 3 * kRingBytes);
  Live64(kPageRegion, 0x38, 0x44 + 3 * kRingBytes);
  Doorbell(0x88 + 3 * kRingBytes);
  EXPECT_LE(runs_.size(), 300u);
}

TEST_F(CollectorTest, RandomRingsAreBounded) {
  uint32_t x = 1;
  for (uint8_t& b : live_[kRingRegion]) {
    x = x * 1664525 + 1013904223;
    b = static_cast<uint8_t>(x >> 24);
  }
  put_ = kRingBytes;
  Live64(kPageRegion, 0x38, put_);
  Doorbell(put_);
  EXPECT_EQ(Last().content, Submission::Content::kObserved);
  EXPECT_GT(Last().not_packets, 0u);
}

}  // namespace
}  // namespace tg::proxy
