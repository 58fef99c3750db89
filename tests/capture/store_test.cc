#include "proxy/capture/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tg::proxy {
namespace {

// What a reader of the trace would know.
class Known {
 public:
  bool Read(uint32_t region, uint64_t offset, std::span<uint8_t> out) const {
    for (size_t i = 0; i < out.size(); ++i) {
      const auto found = bytes_.find({region, offset + i});
      if (found == bytes_.end()) return false;
      out[i] = found->second;
    }
    return true;
  }
  void Apply(const StoredRun& run) {
    for (uint64_t i = 0; i < run.size; ++i) {
      bytes_[{run.region, run.offset + i}] = run.data.empty() ? 0 : run.data[i];
    }
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::map<std::pair<uint32_t, uint64_t>, uint8_t> bytes_;
};

class ChangeStoreTest : public ::testing::Test {
 protected:
  Known known_;
  std::vector<std::string> runs_;  // "region+offset:size" with z for zeros, t for torn
  ChangeStore store_{[this](uint32_t region, uint64_t offset, std::span<uint8_t> out) {
                       return known_.Read(region, offset, out);
                     },
                     [this](const StoredRun& run) {
                       known_.Apply(run);
                       runs_.push_back(std::to_string(run.region) + "+" +
                                       std::to_string(run.offset) + ":" + std::to_string(run.size) +
                                       (run.data.empty() ? "z" : "") + (run.torn ? "t" : ""));
                     }};
  std::vector<std::string> Store(uint64_t offset, const std::vector<uint8_t>& bytes) {
    runs_.clear();
    store_.Store(3, offset, bytes, StoreWhy::kDoorbell);
    return runs_;
  }
  using Runs = std::vector<std::string>;
};

TEST_F(ChangeStoreTest, FirstTimeWhole) {
  EXPECT_EQ(Store(100, std::vector<uint8_t>(68, 1)), (Runs{"3+100:68"}));
  EXPECT_EQ(known_.size(), 68u);
}

TEST_F(ChangeStoreTest, UnchangedBytesAreNotStoredTwice) {
  std::vector<uint8_t> bytes(8192, 1);
  Store(0, bytes);
  EXPECT_EQ(Store(0, bytes), Runs{});
  EXPECT_EQ(Store(100, std::vector<uint8_t>(500, 1)), Runs{});
  bytes[5000] = 2;
  EXPECT_EQ(Store(0, bytes), (Runs{"3+5000:8"}));
  bytes[16] = 3;
  bytes[60] = 3;    // 40 bytes on: one run
  bytes[2000] = 3;  // far: another
  EXPECT_EQ(Store(0, bytes), (Runs{"3+16:48", "3+2000:8"}));
}

TEST_F(ChangeStoreTest, WordsAreNotCut) {
  std::vector<uint8_t> bytes(16, 1);
  Store(4, bytes);
  bytes[5] = 9;  // region byte 9, in the word 8..15
  EXPECT_EQ(Store(4, bytes), (Runs{"3+8:8"}));
  bytes[0] = 9;  // region byte 4: the word's part that was given
  EXPECT_EQ(Store(4, bytes), (Runs{"3+4:4"}));
}

TEST_F(ChangeStoreTest, Zeros) {
  EXPECT_EQ(Store(0, std::vector<uint8_t>(4096)), (Runs{"3+0:4096z"}));
  EXPECT_EQ(Store(8192, std::vector<uint8_t>(8)), (Runs{"3+8192:8"}));
}

TEST_F(ChangeStoreTest, LargePiecesAreCut) {
  EXPECT_EQ(Store(0, std::vector<uint8_t>((1 << 20) + 10, 5)),
            (Runs{"3+0:1048576", "3+1048576:10"}));
}

TEST_F(ChangeStoreTest, PartlyKnown) {
  Store(0, std::vector<uint8_t>(64, 1));
  EXPECT_EQ(Store(32, std::vector<uint8_t>(64, 1)), (Runs{"3+64:32"}));
}

}  // namespace
}  // namespace tg::proxy
