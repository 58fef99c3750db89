// The report's sections that are made from the device model: values of the field reports, and that
// text and JSON say "not observed" instead of zero.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decoder/report/bars_section.h"
#include "decoder/report/boot_section.h"
#include "decoder/report/discovery_section.h"
#include "decoder/report/regs_section.h"
#include "decoder/report/vm_section.h"
#include "tests/amd/discovery_binary.h"
#include "tests/model/feeder.h"

namespace tg::report {
namespace {

using model::Feeder;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename F>
std::string Text(F&& render) {
  Output out(nullptr);
  render(out);
  return out.text();
}

std::string BarsOf(const Feeder& f) {
  const Json json = BarsSectionJson(f.device, f.link());
  return Text([&](Output& out) { BarsSectionText(json, out); });
}
std::string BootOf(const Feeder& f, bool full = false) {
  const Json json = BootSectionJson(f.device);
  return Text([&](Output& out) { BootSectionText(json, out, full); });
}

TEST(Sections, NothingObservedIsSaidAndNotZero) {
  Feeder f;
  const Json bars = BarsSectionJson(f.device, f.link());
  EXPECT_TRUE(bars["vendor"].is_null());
  EXPECT_TRUE(bars["command"].is_null());
  EXPECT_TRUE(bars["vram_size"].is_null());
  EXPECT_TRUE(DeviceJson(f.device).is_null());
  EXPECT_TRUE(BootJson(f.device).is_null());
  EXPECT_TRUE(ScratchJson(f.device).is_null());
  EXPECT_THAT(BarsOf(f), HasSubstr("command        not observed"));
  EXPECT_THAT(BootOf(f), HasSubstr("no start of the AM driver observed"));
  EXPECT_THAT(BootOf(f), HasSubstr("REG6 and REG7 not observed"));
  const Json discovery = DiscoverySectionJson(f.device);
  EXPECT_THAT(Text([&](Output& out) { DiscoverySectionText(discovery, out, true); }),
              HasSubstr("assumed gfx11/12 bases"));
  const Json map = VmMapJson(f.device);
  EXPECT_THAT(Text([&](Output& out) { VmMapText(map, out); }), HasSubstr("0 bytes in 0 ranges"));
}

// B03, first input.
TEST(Sections, NvidiaAllOnes) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x2b8510de);
  f.Read(0, 0xa00, 0xffffffff);
  const std::string text = BarsOf(f);
  EXPECT_THAT(text,
              HasSubstr("NV_PMC_BOOT_42 = 0xffffffff -> architecture 0x3f (63) is not a chip, "
                        "it is an all-ones read"));
  EXPECT_THAT(text, HasSubstr("PCI config still answers (0x10de:0x2b85): BAR decode or link "
                              "problem, not a lost device"));
  EXPECT_EQ(BarsSectionJson(f.device, f.link())["link"]["verdict"], "bar_or_link");
  f.CfgRead(4, 2, 0x0007);
  EXPECT_THAT(BarsOf(f), HasSubstr("0x0007: memory on, bus master on"));
  f.CfgRead(4, 2, 0x0403);
  EXPECT_THAT(BarsOf(f), HasSubstr("0x0403: memory on, bus master off"));
  f.CfgRead(4, 2, 0x0400);
  EXPECT_THAT(BarsOf(f), HasSubstr("all ones expected"));
  EXPECT_EQ(ScratchJson(f.device)["meaning"], "no scratch convention");
  EXPECT_THAT(BootOf(f), HasSubstr("no scratch convention"));
  // No names, no tables are made up for it.
  const Json discovery = DiscoverySectionJson(f.device);
  EXPECT_EQ(discovery["assumed_gc"], nullptr);
  EXPECT_THAT(Text([&](Output& out) { DiscoverySectionText(discovery, out, true); }),
              Not(HasSubstr("gfx11")));
  const Json map = VmMapJson(f.device);
  EXPECT_EQ(map["format"], nullptr);
  EXPECT_THAT(Text([&](Output& out) { VmMapText(map, out); }),
              HasSubstr("page tables of this card are not decoded"));
  const Json walk = VmWalkJson(f.device, 0x200000000000);
  EXPECT_THAT(Text([&](Output& out) { VmWalkText(walk, out); }),
              HasSubstr("page tables of this card are not decoded"));
  RegsOptions unknown;
  unknown.unknown_only = true;
  f.Read(0, 0x1620, 5);
  const Json regs = RegsJson(f.device, unknown);
  ASSERT_EQ(regs["registers"].size(), 1u);
  EXPECT_TRUE(regs["registers"][0]["name"].is_null());
  EXPECT_EQ(regs["registers"][0]["address"], 0x1620);
}

// B03, second input.
TEST(Sections, LastGoodReadAndTheWriteAfterIt) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x118410de);
  for (int i = 0; i < 100; ++i) f.Read(0, 0, 0x0e4040a2, 4, 10'000);
  const uint64_t good = f.call;
  f.Write(0, 0x1620, 1);
  for (int i = 0; i < 10; ++i) f.Read(0, 0, 0xffffffff, 4, 43'000'000);
  EXPECT_THAT(BarsOf(f),
              HasSubstr("NV_PMC_BOOT_0 last good at record " + std::to_string(good) +
                        " (0x0e4040a2), all ones from record " + std::to_string(good + 2) +
                        " on; only write in between: bar0+0x1620; reply time rose from 10 us to 43 "
                        "ms"));
}

// B09, as the report has it: two reads, no discovery table.
TEST(Sections, MalformedState) {
  Feeder f;
  f.Connect();
  f.Read(5, 0x3011c, 0xa0000008);
  f.Read(5, 0x30118, 1);
  const Json scratch = ScratchJson(f.device);
  EXPECT_EQ(scratch["reg7"], 0xa0000008);
  EXPECT_EQ(scratch["reg6"], 1);
  EXPECT_EQ(scratch["am_version"], 8);
  EXPECT_EQ(scratch["meaning"], "AM since 2026-01-26");
  const std::string text = BootOf(f);
  EXPECT_THAT(text, HasSubstr("REG7 0xa0000008 (AM since 2026-01-26), REG6 1: previous session did "
                              "not finish cleanly -> full reset expected"));
  EXPECT_THAT(text, HasSubstr("assumed gfx11/12 base 0xA000"));
}

TEST(Sections, OlderAmAndAllOnes) {
  Feeder older;
  older.Connect();
  older.Read(5, 0x3011c, 0xa0000007);
  EXPECT_THAT(BootOf(older), HasSubstr("older AM left this state; cold boot expected, REG6 not "
                                       "consulted"));
  Feeder ones;
  ones.Connect();
  ones.Read(5, 0x3011c, 0xffffffff);
  EXPECT_THAT(BootOf(ones), Not(HasSubstr("unknown version")));
  EXPECT_EQ(BarsSectionJson(ones.device, ones.link())["link"]["verdict"], "config_unknown");
}

// B09: SMU message 0x1a, a thousand polls of zero.
TEST(Sections, SmuMessageUnanswered) {
  Feeder f;
  f.Connect();
  f.Write(5, 0x58a68, 0);
  f.Write(5, 0x58a48, 0);
  f.Write(5, 0x58a08, 0x1a);
  for (int i = 0; i < 1000; ++i) f.Read(5, 0x58a68, 0);
  EXPECT_THAT(BootOf(f), HasSubstr("SMU message 0x1a unanswered (1,000 polls)"));
}

TEST(Sections, DiscoveryPropertiesAndBlocks) {
  amd::DiscoveryBinary b;
  b.Ip(amd::kHwGc, 0, {11, 0, 0}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(amd::kHwMp1, 0, {13, 0, 0}, {0x16000});
  b.Ip(271, 0, {3, 2, 0}, {0x12, 0xC0});
  b.Gc(1, {{0x0c, 6}, {0x10, 4}, {0x38, 32}, {0x3c, 16}, {0x40, 32}, {0x44, 64}, {0x4c, 2}});
  b.Sum();
  Feeder f;
  f.Connect();
  f.MapBar(5, 1 << 20);
  f.Read(0, 0x1000, b.bytes());
  const Json device = DeviceJson(f.device);
  EXPECT_EQ(device["asic"], "navi31");
  EXPECT_EQ(device["gfx"], "gfx1100");
  EXPECT_EQ(device["props"]["gfx_target_version"], 110000);
  EXPECT_EQ(device["props"]["simd_count"], 192);
  const Json ips = IpsJson(f.device);
  ASSERT_EQ(ips.size(), 3u);
  EXPECT_EQ(ips[0]["name"], "GC");
  EXPECT_EQ(ips[0]["version"], "11.0.0");
  EXPECT_EQ(ips[0]["registers"], "gc 11.0.0");
  EXPECT_EQ(ips[0]["bases"], (std::vector<uint64_t>{0x1260, 0xA000, 0x1C000, 0x2402C00}));
  EXPECT_EQ(ips[1]["registers"], "mp 11.0.0");
  EXPECT_TRUE(ips[2]["registers"].is_null());
  const Json section = DiscoverySectionJson(f.device);
  const std::string text = Text([&](Output& out) { DiscoverySectionText(section, out, false); });
  EXPECT_THAT(text, HasSubstr("navi31, gfx1100"));
  EXPECT_THAT(text, HasSubstr("1 XCC, 6 shader engines, 96 CUs, 16 waves per SIMD, 64 KiB LDS, gfx "
                              "target 110000"));
}

TEST(Sections, RegistersByGlobBlockAndHistory) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x744c1002);
  f.W("regGRBM_GFX_CNTL", 4);
  f.W("regGRBM_GFX_CNTL", 0);
  f.R("mmMP1_SMN_C2PMSG_90", 1);
  f.Read(5, 0x7fffc, 9);
  RegsOptions options;
  EXPECT_EQ(RegsJson(f.device, options)["registers"].size(), 3u);
  EXPECT_TRUE(RegsJson(f.device, options)["registers"][0]["name"].is_null());  // unknown first
  options.glob = "grbm_*";
  options.history = true;
  const Json grbm = RegsJson(f.device, options);
  ASSERT_EQ(grbm["registers"].size(), 1u);
  EXPECT_EQ(grbm["registers"][0]["name"], "regGRBM_GFX_CNTL");
  EXPECT_EQ(grbm["registers"][0]["block"], "GC");
  ASSERT_EQ(grbm["registers"][0]["history"].size(), 2u);
  EXPECT_EQ(grbm["registers"][0]["history"][0]["fields"], "meid=1");
  const std::string text = Text([&](Output& out) { RegsText(grbm, out); });
  EXPECT_THAT(text, HasSubstr("regGRBM_GFX_CNTL"));
  EXPECT_THAT(text, HasSubstr("W 0x00000004  meid=1"));
  options = {};
  options.block = "mp1";
  EXPECT_EQ(RegsJson(f.device, options)["registers"].size(), 1u);
  EXPECT_TRUE(MatchesGlob("*RB_CNTL", "regSDMA0_QUEUE0_RB_CNTL"));
  EXPECT_TRUE(MatchesGlob("sdma?_*_rb_cntl", "regSDMA0_QUEUE0_RB_CNTL"));
  EXPECT_FALSE(MatchesGlob("RB_CNTL", "regSDMA0_QUEUE0_RB_CNTL"));
  EXPECT_FALSE(MatchesGlob("****************************a", std::string(5000, 'b')));
}

TEST(Sections, WalkOfAnAddress) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x75501002);
  f.MapBar(0, 16ull << 30);
  f.MapBar(5, 512 << 10);
  f.Region(3, 0x4000, {{0x100000000, 0x4000}});
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 1);
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32", 0);
  f.Write(0, 0, 0x2000001, 8);
  f.Write(0, 0x2000000, 0x2001001, 8);
  f.Write(0, 0x2001000, 0x2002001, 8);
  f.Write(0, 0x2002000, 0x80c0000100000077, 8);
  const uint64_t writer = f.call;
  const Json walk = VmWalkJson(f.device, 0x200000000100);
  EXPECT_EQ(walk["end"], "mapped");
  ASSERT_EQ(walk["levels"].size(), 4u);
  EXPECT_EQ(walk["levels"][3]["seq"], writer);
  EXPECT_EQ(walk["target"]["kind"], "sysmem");
  EXPECT_EQ(walk["target"]["region"], 3);
  EXPECT_EQ(walk["target"]["region_offset"], 0x100);
  const std::string text = Text([&](Output& out) { VmWalkText(walk, out); });
  EXPECT_THAT(text, HasSubstr("leads to       sysmem 3 + 0x100 (DMA 0x100000100)"));
  EXPECT_THAT(text, HasSubstr("written by the client #" + std::to_string(writer)));
  EXPECT_THAT(text, HasSubstr("content not observed"));
  const Json map = VmMapJson(f.device);
  ASSERT_EQ(map["mappings"].size(), 1u);
  EXPECT_EQ(map["mappings"][0]["va"], 0x200000000000);
  EXPECT_EQ(map["mappings"][0]["size"], 4096);
  EXPECT_FALSE(map["root_assumed"].get<bool>());
  EXPECT_TRUE(ParseAddress("0x200000000000"));
  EXPECT_FALSE(ParseAddress("-1"));
  EXPECT_FALSE(ParseAddress("0x2000g"));
  EXPECT_FALSE(ParseAddress("0x1ffffffffffffffff"));
}

}  // namespace
}  // namespace tg::report
