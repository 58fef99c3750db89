#include "replay/sim/discovery_blob.h"

#include <gtest/gtest.h>

#include "schemas/amd/discovery.h"

namespace tg::sim {
namespace {

TEST(Discovery, SaysWhatTheCardsAre) {
  struct Case {
    const char* asic;
    const char* arch;
    uint32_t simds;
    amd::IpVersion gc, sdma, mp0, nbif;
  };
  const Case cases[] = {
      {"navi31", "gfx1100", 192, {11, 0, 0}, {6, 0, 0}, {13, 0, 0}, {4, 3, 0}},
      {"navi48", "gfx1201", 128, {12, 0, 1}, {7, 0, 1}, {14, 0, 3}, {6, 3, 1}},
  };
  for (const Case& one : cases) {
    const std::vector<uint8_t> bytes = BuildDiscovery(*FindAsic(one.asic));
    ASSERT_EQ(bytes.size(), 0x2800u);
    const auto parsed = amd::ParseDiscovery(bytes);
    ASSERT_TRUE(parsed);
    EXPECT_TRUE(parsed->checksum_ok);
    EXPECT_TRUE(parsed->problems.empty());
    EXPECT_EQ(parsed->Version(amd::kHwGc), one.gc);
    EXPECT_EQ(parsed->Version(amd::kHwSdma0), one.sdma);
    EXPECT_EQ(parsed->Version(amd::kHwMp0), one.mp0);
    EXPECT_EQ(parsed->Version(amd::kHwNbif), one.nbif);
    const auto props = parsed->Props();
    ASSERT_TRUE(props);
    EXPECT_EQ(props->arch, one.arch);
    EXPECT_EQ(props->simd_count, one.simds);
    EXPECT_EQ(props->lds_size_in_kb, 64u);
    EXPECT_EQ(props->max_slots_scratch_cu, 32u);
    EXPECT_TRUE(props->accepted);
  }
}

TEST(Discovery, WideBasesAndHarvestedBlocks) {
  const HarvestedIp harvested[] = {{12, 0}};
  const auto parsed = amd::ParseDiscovery(BuildDiscovery(*FindAsic("navi48"), true, harvested));
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->base_64);
  EXPECT_TRUE(parsed->checksum_ok);
  ASSERT_EQ(parsed->harvested.size(), 1u);
  EXPECT_EQ(parsed->harvested[0].hw_id, 12);
  for (const amd::IpBlock& ip : parsed->ips) {
    if (ip.hw_id == amd::kHwGc) {
      EXPECT_EQ(ip.bases, (std::vector<uint64_t>{0x1260, 0xA000, 0x1C000, 0x2402C00}));
    }
  }
}

}  // namespace
}  // namespace tg::sim
