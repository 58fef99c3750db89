#include "proxy/capture/page_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tg::proxy {
namespace {

class PageScanTest : public ::testing::Test {
 protected:
  size_t Copy(uint32_t region, uint64_t offset, std::span<uint8_t> to) {
    ++reads_;
    const auto& bytes = live_[region];
    if (offset >= bytes.size()) return 0;
    const size_t n = std::min<size_t>(to.size(), bytes.size() - offset);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), n, to.begin());
    return n;
  }
  std::map<uint32_t, std::vector<uint8_t>> live_;
  size_t reads_ = 0;
  std::vector<std::pair<uint32_t, uint64_t>> stored_;
  ChangeStore store_{[](uint32_t, uint64_t, std::span<uint8_t>) { return false; },
                     [this](const StoredRun& run) {
                       stored_.push_back({run.region, run.offset});
                     }};
  PageScan scan_{[this](uint32_t r, uint64_t o, std::span<uint8_t> to) { return Copy(r, o, to); },
                 store_};
  using Stored = std::vector<std::pair<uint32_t, uint64_t>>;
};

TEST_F(PageScanTest, OnlyChangedPages) {
  live_[0] = std::vector<uint8_t>(16384, 1);
  scan_.Add(0, 16384);
  scan_.ScanAll(StoreWhy::kEnd);
  EXPECT_EQ(stored_.size(), 4u);
  stored_.clear();
  scan_.ScanAll(StoreWhy::kEnd);
  EXPECT_TRUE(stored_.empty());
  live_[0][9000] = 7;
  scan_.ScanAll(StoreWhy::kEnd);
  EXPECT_EQ(stored_, (Stored{{0, 8192}}));
}

TEST_F(PageScanTest, BudgetAndGoingRound) {
  live_[0] = std::vector<uint8_t>(1 << 20, 1);
  live_[4] = std::vector<uint8_t>(1 << 20, 2);
  scan_.Add(0, 1 << 20);
  scan_.Add(4, 1 << 20);
  EXPECT_FALSE(scan_.ScanSome(StoreWhy::kDoorbell, 300, 10));
  EXPECT_EQ(stored_.size(), 10u);
  EXPECT_EQ(reads_, 10u);  // stops when enough changed
  EXPECT_FALSE(scan_.ScanSome(StoreWhy::kDoorbell, 300, 10));
  EXPECT_EQ(stored_.back(), (std::pair<uint32_t, uint64_t>{0, 19 * 4096}));
  EXPECT_FALSE(scan_.ScanSome(StoreWhy::kDoorbell, 400, 400));
  EXPECT_TRUE(scan_.ScanSome(StoreWhy::kDoorbell, 1000, 1000));
  EXPECT_EQ(stored_.size(), 512u);
  EXPECT_EQ(stored_.back().first, 4u);
}

TEST_F(PageScanTest, SmallRegionsOnly) {
  live_[1] = std::vector<uint8_t>(16384, 1);
  live_[2] = std::vector<uint8_t>(1 << 20, 1);
  scan_.Add(1, 16384);
  scan_.Add(2, 1 << 20);
  scan_.ScanSmall(StoreWhy::kStall);
  EXPECT_EQ(stored_.size(), 4u);
}

TEST_F(PageScanTest, RegionThatShrankOrVanished) {
  live_[1] = std::vector<uint8_t>(16384, 1);
  scan_.Add(1, 16384);
  live_[1].resize(5000);
  scan_.ScanAll(StoreWhy::kEnd);
  EXPECT_EQ(stored_, (Stored{{1, 0}, {1, 4096}}));
  live_.clear();
  stored_.clear();
  scan_.ScanAll(StoreWhy::kEnd);
  EXPECT_TRUE(stored_.empty());
  EXPECT_TRUE(PageScan([](uint32_t, uint64_t, std::span<uint8_t>) -> size_t { return 0; }, store_)
                  .ScanSome(StoreWhy::kEnd, 10, 10));
}

}  // namespace
}  // namespace tg::proxy
