#include "proxy/capture/stall_watch.h"

#include <gtest/gtest.h>

namespace tg::proxy {
namespace {

using What = StallWatch::Action::What;
constexpr uint64_t kMs = 1'000'000;

TEST(StallWatch, PollRunIsCalledWithinASecond) {
  StallWatch watch;
  watch.OnDoorbell(1000 * kMs);
  EXPECT_EQ(watch.Tick(1100 * kMs).what, What::kNothing);
  uint64_t began = 0;
  for (uint64_t t = 1200; t < 3000; ++t) {  // the client polls after 200 ms, back to back
    watch.OnPollRound(t * kMs);
    watch.OnMessage(t * kMs + 1, true);
    const auto action = watch.Tick(t * kMs + 2);
    if (action.what == What::kBegin) {
      EXPECT_EQ(action.kind, StallWatch::Kind::kPollRun);
      EXPECT_EQ(action.since_ns, 1200 * kMs);
      began = t;
      break;
    }
  }
  EXPECT_EQ(began, 1450u);
  EXPECT_TRUE(watch.stalled());
}

TEST(StallWatch, SnapshotsAt1And5And30Seconds) {
  StallWatch watch;
  watch.OnDoorbell(0);
  std::vector<uint64_t> snapshots;
  for (uint64_t t = 200; t < 60'000; t += 10) {
    watch.OnPollRound(t * kMs);
    if (watch.Tick(t * kMs).what == What::kSnapshot) snapshots.push_back(t);
  }
  EXPECT_EQ(snapshots, (std::vector<uint64_t>{1200, 5200, 30200}));
}

TEST(StallWatch, DrainEndsIt) {
  StallWatch watch;
  watch.OnDoorbell(0);
  for (uint64_t t = 200; t <= 900; t += 10) {
    watch.OnPollRound(t * kMs);
    watch.Tick(t * kMs);
  }
  ASSERT_TRUE(watch.stalled());
  watch.OnDrain(950 * kMs);
  const auto over = watch.Tick(951 * kMs);
  EXPECT_EQ(over.what, What::kOver);
  EXPECT_EQ(over.lasted_ns, 750 * kMs);
  EXPECT_STREQ(over.why, "the client's wait ended");
  EXPECT_FALSE(watch.stalled());
  EXPECT_EQ(watch.Tick(5000 * kMs).what, What::kNothing);
}

// A wait that ends soon after 200 ms is no stall.
TEST(StallWatch, ShortRunsAreNotStalls) {
  StallWatch watch;
  for (uint64_t start = 0; start < 20'000; start += 1000) {
    watch.OnDoorbell(start * kMs);
    for (uint64_t t = 200; t < 400; t += 5) {
      watch.OnPollRound((start + t) * kMs);
      EXPECT_EQ(watch.Tick((start + t) * kMs).what, What::kNothing);
    }
    watch.OnDrain((start + 400) * kMs);
    EXPECT_EQ(watch.Tick((start + 401) * kMs).what, What::kNothing);
  }
}

TEST(StallWatch, SilenceAsksWhetherWorkIsOutstanding) {
  StallWatch watch;
  watch.OnDoorbell(0);
  EXPECT_EQ(watch.Tick(600 * kMs).what, What::kNothing);
  EXPECT_EQ(watch.Tick(700 * kMs).what, What::kLook);
  EXPECT_EQ(watch.Tick(701 * kMs).what, What::kNothing);
  watch.OnLook(702 * kMs, true);
  const auto begin = watch.Tick(702 * kMs);
  EXPECT_EQ(begin.what, What::kBegin);
  EXPECT_EQ(begin.kind, StallWatch::Kind::kSilence);
  EXPECT_EQ(begin.since_ns, 0u);
  EXPECT_EQ(watch.Tick(1000 * kMs).what, What::kSnapshot);
  watch.OnMessage(4000 * kMs, false);
  const auto over = watch.Tick(4001 * kMs);
  EXPECT_EQ(over.what, What::kOver);
  EXPECT_EQ(over.lasted_ns, 4000 * kMs);
}

TEST(StallWatch, SilenceWithoutWorkIsFine) {
  StallWatch watch;
  watch.OnDoorbell(0);
  ASSERT_EQ(watch.Tick(700 * kMs).what, What::kLook);
  watch.OnLook(700 * kMs, false);
  for (uint64_t t = 700; t < 60'000; t += 100) {
    EXPECT_EQ(watch.Tick(t * kMs).what, What::kNothing);
  }
  // Before the first doorbell nothing is outstanding.
  StallWatch fresh;
  fresh.OnMessage(0, false);
  EXPECT_EQ(fresh.Tick(10'000 * kMs).what, What::kNothing);
}

// On TCP the ring-full spin is an endless read of one word.
TEST(StallWatch, PollingOfMemoryIsSilence) {
  StallWatch watch;
  watch.OnDoorbell(0);
  bool looked = false;
  for (uint64_t t = 1; t <= 700; ++t) {
    watch.OnMessage(t * kMs, true);
    looked = watch.Tick(t * kMs).what == What::kLook;
  }
  EXPECT_TRUE(looked);
}

TEST(StallWatch, DisconnectEndsIt) {
  StallWatch watch;
  watch.OnDoorbell(0);
  for (uint64_t t = 200; t <= 900; t += 10) {
    watch.OnPollRound(t * kMs);
    watch.Tick(t * kMs);
  }
  watch.OnDisconnect(1000 * kMs);
  const auto over = watch.Tick(1001 * kMs);
  EXPECT_EQ(over.what, What::kOver);
  EXPECT_EQ(over.lasted_ns, 800 * kMs);
  EXPECT_EQ(watch.Tick(10'000 * kMs).what, What::kNothing);
}

}  // namespace
}  // namespace tg::proxy
