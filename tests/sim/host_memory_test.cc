#include "replay/sim/host_memory.h"

#include <gtest/gtest.h>

namespace tg::sim {
namespace {

TEST(HostMemory, SegmentsAreScatteredAndCoverTheRegion) {
  HostMemory memory;
  std::vector<uint8_t> data(5 << 20);
  const auto segments = memory.Map(data.data(), data.size(), 32);
  ASSERT_EQ(segments.size(), 3u);  // 2 + 2 + 1 MiB
  uint64_t covered = 0;
  for (size_t i = 0; i < segments.size(); i++) {
    EXPECT_LT(segments[i].address + segments[i].size, 1ull << 40);
    EXPECT_EQ(segments[i].address % 0x1000, 0u);
    if (i) {
      EXPECT_NE(segments[i].address, segments[i - 1].address + segments[i - 1].size);
    }
    EXPECT_EQ(memory.At(segments[i].address).data, data.data() + covered);
    EXPECT_EQ(memory.At(segments[i].address + 5).bytes, segments[i].size - 5);
    covered += segments[i].size;
  }
  EXPECT_EQ(covered, data.size());
  EXPECT_EQ(memory.At(segments[0].address + segments[0].size).data, nullptr);
  EXPECT_EQ(memory.At(0).data, nullptr);
  EXPECT_EQ(memory.At(UINT64_MAX).data, nullptr);
}

TEST(HostMemory, AtMostTheGivenNumberOfSegments) {
  HostMemory memory;
  uint8_t byte = 0;
  EXPECT_EQ(memory.Map(&byte, 64ull << 20, 32).size(), 32u);
  EXPECT_EQ(memory.Map(&byte, 100ull << 20, 32).size(), 32u);
  EXPECT_EQ(memory.Map(&byte, 0x4000, 32).size(), 1u);
  EXPECT_TRUE(memory.Map(&byte, 0, 32).empty());
  EXPECT_TRUE(memory.Map(&byte, UINT64_MAX, 32).empty());
  memory.Clear();
  EXPECT_EQ(memory.segments(), 0u);
}

}  // namespace
}  // namespace tg::sim
