#include "schemas/amd/discovery.h"

#include <gtest/gtest.h>

#include "schemas/amd/vram_layout.h"
#include "tests/amd/discovery_binary.h"

namespace tg::amd {
namespace {

// A Radeon RX 7900 XTX: 6 engines x 2 arrays x 4 work-group processors = 96 CUs.
TEST(Discovery, Navi31Properties) {
  DiscoveryBinary b;
  b.Ip(kHwGc, 0, {11, 0, 0}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(kHwMp0, 0, {13, 0, 0}, {0x16000});
  b.Ip(kHwSdma0, 0, {6, 0, 0}, {0x1260});
  b.Gc(1, {{0x0c, 6}, {0x10, 4}, {0x38, 32}, {0x3c, 16}, {0x40, 32}, {0x44, 64}, {0x4c, 2}});
  b.Sum();
  const auto parsed = ParseDiscovery(b.bytes());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->checksum_ok);
  EXPECT_TRUE(parsed->problems.empty());
  ASSERT_EQ(parsed->ips.size(), 3u);
  EXPECT_EQ(parsed->ips[0].bases, (std::vector<uint64_t>{0x1260, 0xA000, 0x1C000, 0x2402C00}));
  EXPECT_EQ(parsed->Version(kHwMp0), (IpVersion{13, 0, 0}));
  const auto props = parsed->Props();
  ASSERT_TRUE(props);
  EXPECT_EQ(props->gfx_target_version, 110000u);
  EXPECT_EQ(props->arch, "gfx1100");
  EXPECT_TRUE(props->accepted);
  EXPECT_EQ(props->num_xcc, 1u);
  EXPECT_EQ(props->cu_per_simd_array, 8u);
  EXPECT_EQ(props->array_count, 12u);
  EXPECT_EQ(props->simd_count, 192u);
  EXPECT_EQ(props->cu_cnt, 96u);
  EXPECT_EQ(props->se_cnt, 6u);
  EXPECT_EQ(props->max_waves_per_simd, 16u);
  EXPECT_EQ(props->max_slots_scratch_cu, 32u);
  EXPECT_EQ(props->lds_size_in_kb, 64u);
}

// tinygrad's mock card: gfx12 with a gc_info of version 2.
TEST(Discovery, MockGfx12Properties) {
  DiscoveryBinary b;
  b.Ip(kHwGc, 0, {12, 0, 0}, {0x1260, 0xA000});
  b.Gc(2, {{0x0c, 2}, {0x10, 8}, {0x14, 2}, {0x3c, 16}, {0x40, 32}, {0x44, 64}});
  const auto props = ParseDiscovery(b.bytes())->Props();
  ASSERT_TRUE(props);
  EXPECT_EQ(props->arch, "gfx1200");
  EXPECT_EQ(props->array_count, 4u);
  EXPECT_EQ(props->simd_count, 64u);
  EXPECT_EQ(props->cu_cnt, 32u);
  EXPECT_EQ(props->se_cnt, 2u);
}

TEST(Discovery, HarvestedInstancesDoNotCount) {
  DiscoveryBinary b;
  for (uint8_t i = 0; i < 8; ++i) b.Ip(kHwGc, i, {9, 4, 3}, {0x2000, 0xA000});
  b.Ip(kHwNbif, 0, {7, 9, 0}, {0});
  b.Gc(2, {{0x0c, 4}, {0x10, 10}, {0x14, 1}, {0x3c, 8}, {0x40, 32}, {0x44, 64}});
  b.Harvest({{kHwGc, 6}, {kHwGc, 7}});
  const auto d = ParseDiscovery(b.bytes());
  ASSERT_TRUE(d);
  EXPECT_EQ(d->LiveInstances(kHwGc), 6u);
  EXPECT_TRUE(d->ips[7].harvested);
  EXPECT_FALSE(d->ips[5].harvested);
  EXPECT_EQ(d->Props()->num_xcc, 6u);
  EXPECT_EQ(d->Props()->gfx_target_version, 90402u);
  EXPECT_EQ(d->Props()->arch, "gfx942");
  EXPECT_EQ(d->Props()->array_count, 24u);
  EXPECT_FALSE(d->checksum_ok);
}

TEST(Discovery, SixtyFourBitBases) {
  DiscoveryBinary b;
  b.U8(DiscoveryBinary::kIpAt + 0x4e, 1);
  b.Ip(kHwGc, 0, {12, 0, 0}, {0x1260, 0, 0xA000, 1});
  b.U8(DiscoveryBinary::kIpAt + 0x54 + 3, 2);  // two bases of eight bytes
  const auto d = ParseDiscovery(b.bytes());
  ASSERT_TRUE(d);
  ASSERT_EQ(d->ips.size(), 1u);
  EXPECT_EQ(d->ips[0].bases, (std::vector<uint64_t>{0x1260, 0x10000A000ull}));
}

TEST(Discovery, NotADiscoveryBinary) {
  EXPECT_FALSE(ParseDiscovery({}));
  std::vector<uint8_t> ones(kDiscoverySize, 0xff);
  const auto result = ParseDiscovery(ones);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "discovery binary: signature 0xffffffff instead of 0x28211407");
  DiscoveryBinary b;
  b.U16(0xc, 0xfff0);
  EXPECT_FALSE(ParseDiscovery(b.bytes()));
}

TEST(Discovery, HostileCountsStayWithinTheBytes) {
  DiscoveryBinary b;
  b.Ip(kHwGc, 0, {12, 0, 0}, {0x1260});
  b.U16(DiscoveryBinary::kIpAt + 0x52, 0xffff);  // entries
  b.U16(DiscoveryBinary::kIpAt + 0xc, 0xffff);   // dies, all at the same place
  for (int die = 0; die < 16; ++die)
    b.U16(DiscoveryBinary::kIpAt + 0xe + die * 4 + 2, DiscoveryBinary::kIpAt + 0x50);
  b.U16(0x14, 0x27ff);  // gc_info across the end
  b.U16(0x1c, 0x2700);  // no harvest table there
  const auto d = ParseDiscovery(b.bytes());
  ASSERT_TRUE(d);
  EXPECT_LE(d->ips.size(), kMaxIpBlocks);
  EXPECT_EQ(d->dies, 16);
  EXPECT_FALSE(d->gc);
  EXPECT_FALSE(d->Props());
  EXPECT_GE(d->problems.size(), 4u);
}

TEST(Discovery, EveryTruncationIsSafe) {
  DiscoveryBinary b;
  b.Ip(kHwGc, 0, {11, 0, 0}, {0x1260, 0xA000});
  b.Gc(1, {{0x0c, 6}});
  b.Harvest({{kHwGc, 1}});
  for (size_t size = 0; size <= b.bytes().size(); ++size) {
    const auto d = ParseDiscovery(std::span(b.bytes()).first(size));
    if (size < 0x8c) {
      EXPECT_FALSE(d) << size;
    }
    if (d) d->Props();
  }
}

}  // namespace
}  // namespace tg::amd
