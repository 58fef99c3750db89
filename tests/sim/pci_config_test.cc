#include "replay/sim/pci_config.h"

#include <gtest/gtest.h>

namespace tg::sim {
namespace {

TEST(PciConfig, Identity) {
  const PciConfig config(*FindAsic("navi31"), 32ull << 30);
  EXPECT_EQ(config.Read(0, 4), 0x744c1002u);
  EXPECT_EQ(config.Read(2, 2), 0x744cu);
  EXPECT_EQ(config.Read(8, 4), 0x030000c8u);
  EXPECT_EQ(config.Read(0x0b, 1), 3u);
}

TEST(PciConfig, CommandRegisterTakesWhatExists) {
  PciConfig config(*FindAsic("navi31"), 32ull << 30);
  EXPECT_EQ(config.Read(4, 2), 0x0002u);  // memory on, bus master off
  config.Write(4, 2, 0xffff);
  EXPECT_EQ(config.Read(4, 2), 0x0547u);
  EXPECT_TRUE(config.bus_master());
  config.Write(4, 2, 0x0403);
  EXPECT_FALSE(config.bus_master());
  EXPECT_TRUE(config.memory_enabled());
  config.Reset();
  EXPECT_EQ(config.Read(4, 2), 0x0002u);
}

TEST(PciConfig, CapabilityListAsLspciShowsIt) {
  const PciConfig config(*FindAsic("navi31"), 32ull << 30);
  ASSERT_TRUE(config.Read(6, 2) & 0x10);
  std::vector<std::pair<uint32_t, uint32_t>> list;
  for (uint32_t at = config.Read(0x34, 1); at && list.size() < 10; at = config.Read(at + 1, 1))
    list.push_back({at, config.Read(at, 1)});
  const std::vector<std::pair<uint32_t, uint32_t>> expected = {
      {0x48, 0x09}, {0x50, 0x01}, {0x64, 0x10}, {0xa0, 0x05}};
  EXPECT_EQ(list, expected);
  EXPECT_EQ(config.Read(0x74, 2) & 3, 3u);  // ASPM on
}

TEST(PciConfig, BarsCanBeSized) {
  PciConfig config(*FindAsic("navi31"), 32ull << 30);
  EXPECT_EQ(config.bar_size(0), 32ull << 30);
  EXPECT_EQ(config.bar_size(2), 2ull << 20);
  EXPECT_EQ(config.bar_size(5), 1ull << 20);
  for (uint32_t bar : {1u, 3u, 4u, 6u, 256u}) EXPECT_EQ(config.bar_size(bar), 0u);
  const uint64_t address = config.bar_address(0);
  EXPECT_EQ(address % (32ull << 30), 0u);
  config.Write(0x10, 4, 0xffffffff);
  config.Write(0x14, 4, 0xffffffff);
  EXPECT_EQ(config.Read(0x10, 4), 0x0000000cu);  // 64 bit, prefetchable; size 2^35
  EXPECT_EQ(config.Read(0x14, 4), 0xfffffff8u);
  config.Write(0x24, 4, 0xffffffff);
  EXPECT_EQ(config.Read(0x24, 4), 0xfff00000u);
  EXPECT_EQ(config.Read(0x2c, 4) & 0xffff, 0x1002u);
}

TEST(PciConfig, ResizableBarSaysTheSizeItHas) {
  // Capability 0x15 at 0x200; size field: 8 = 256 MiB, 15 = 32 GiB
  const PciConfig small(*FindAsic("navi31"), 256ull << 20);
  EXPECT_EQ(small.Read(0x200, 2), 0x15u);
  EXPECT_EQ(small.Read(0x208, 4) >> 8 & 0x3f, 8u);
  EXPECT_EQ(small.Read(0x204, 4), 0xff000u);
  const PciConfig full(*FindAsic("navi31"), 32ull << 30);
  EXPECT_EQ(full.Read(0x208, 4) >> 8 & 0x3f, 15u);
}

TEST(PciConfig, OddAccesses) {
  PciConfig config(*FindAsic("navi48"), 256ull << 20);
  EXPECT_EQ(config.Read(4095, 1), 0u);
  EXPECT_EQ(config.Read(4095, 2), 0xffffffffu);
  EXPECT_EQ(config.Read(UINT64_MAX, 4), 0xffffffffu);
  EXPECT_EQ(config.Read(0, 3), 0xffffffffu);
  config.Write(UINT64_MAX, 4, 1);
  config.Write(0, 4, 0);
  EXPECT_EQ(config.Read(0, 4), 0x75501002u);
}

}  // namespace
}  // namespace tg::sim
