#include "decoder/model/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/amd/discovery_binary.h"
#include "tests/model/feeder.h"

namespace tg::model {
namespace {

using wire::Command;

amd::DiscoveryBinary Navi48() {
  amd::DiscoveryBinary b;
  b.Ip(amd::kHwGc, 0, {12, 0, 1}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(amd::kHwSdma0, 0, {7, 0, 1}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(amd::kHwMmhub, 0, {4, 1, 0}, {0x1A000, 0x2408800});
  b.Ip(amd::kHwNbif, 0, {6, 3, 1}, {0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000});
  b.Ip(amd::kHwMp0, 0, {14, 0, 3}, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00});
  b.Ip(amd::kHwMp1, 0, {14, 0, 3}, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00});
  b.Ip(amd::kHwHdp, 0, {7, 0, 0}, {0xF20, 0x240A400});
  b.Ip(amd::kHwOsssys, 0, {7, 0, 0}, {0x10A0, 0x240A000});
  b.Gc(1, {{0x0c, 4}, {0x10, 4}, {0x38, 32}, {0x3c, 16}, {0x40, 32}, {0x44, 64}, {0x4c, 2}});
  b.Sum();
  return b;
}

constexpr uint64_t kVram = 16ull << 30;

Feeder& Connected(Feeder& f, uint64_t bar0 = kVram) {
  f.Connect();
  f.MapBar(0, bar0);
  f.MapBar(2, 2 << 20);
  f.MapBar(5, 512 << 10);
  f.Read(5, 0x378c, kVram >> 20);
  return f;
}

void Discover(Feeder& f) {
  f.Read(0, kVram - 0x10000, Navi48().bytes());
}

TEST(Device, NothingObserved) {
  Device d;
  EXPECT_EQ(d.vendor(), Vendor::kUnknown);
  EXPECT_EQ(d.discovery(), nullptr);
  EXPECT_EQ(d.vram_size(), std::nullopt);
  EXPECT_EQ(d.large_bar(), std::nullopt);
  EXPECT_EQ(d.registers().Value("SCRATCH_REG7"), std::nullopt);
  EXPECT_TRUE(d.registers().map().assumed());
  EXPECT_EQ(d.boot().current(), nullptr);
}

TEST(Device, BarsAndDiscoveryByBulkRead) {
  Feeder f;
  Connected(f);
  const Bar* bar0 = f.device.bars().Find(0);
  ASSERT_NE(bar0, nullptr);
  EXPECT_EQ(bar0->size, kVram);
  EXPECT_EQ(bar0->address, 0x7f0000000000u);
  EXPECT_EQ(bar0->kind, AddressKind::kServerVirtual);
  EXPECT_EQ(f.device.vendor(), Vendor::kAmd);
  EXPECT_EQ(f.device.vram_size(), kVram);
  EXPECT_EQ(f.device.large_bar(), true);
  EXPECT_EQ(f.device.gc(), (amd::IpVersion{11, 0, 0}));  // assumed
  Discover(f);
  ASSERT_NE(f.device.discovery(), nullptr);
  EXPECT_EQ(f.device.discovery_source(), DiscoverySource::kBulkRead);
  EXPECT_EQ(f.device.gc(), (amd::IpVersion{12, 0, 1}));
  EXPECT_FALSE(f.device.registers().map().assumed());
  EXPECT_FALSE(f.device.gpuvm().format_assumed());
  EXPECT_EQ(f.device.gpuvm().format(), amd::PteFormat::kGfx12);
  EXPECT_EQ(f.device.discovery()->Props()->arch, "gfx1201");
  EXPECT_EQ(f.device.discovery()->Props()->cu_cnt, 64u);
  EXPECT_TRUE(f.device.warnings().empty());
}

TEST(Device, DiscoveryThroughTheVramWindow) {
  Feeder f;
  Connected(f, 256 << 20);
  EXPECT_EQ(f.device.large_bar(), false);
  const auto binary = Navi48();
  for (uint64_t i = 0; i < binary.bytes().size(); i += 4) {
    const uint64_t at = kVram - 0x10000 + i;
    f.Write(5, 24, at >> 31);
    f.Write(5, 0, (at & 0x7fffffff) | 0x80000000);
    f.Read(5, 4, LoadLe<uint32_t>(binary.bytes().data() + i));
  }
  ASSERT_NE(f.device.discovery(), nullptr);
  EXPECT_EQ(f.device.discovery_source(), DiscoverySource::kWindow);
  EXPECT_EQ(f.device.gc(), (amd::IpVersion{12, 0, 1}));
  EXPECT_EQ(f.device.vram().U32(kVram - 0x10000), amd::kDiscoverySignature);
  EXPECT_TRUE(f.device.warnings().empty());
}

TEST(Device, TableCutByTheTraceGivesWhatIsThere) {
  Feeder f;
  Connected(f);
  const auto binary = Navi48();
  f.Request(Command::kMmioRead, 0, kVram - 0x10000, 0x2800);
  trace::Record record;
  record.kind = trace::Record::Kind::kReply;
  record.call = f.call;
  record.reply.body.size = 0x2800;
  record.reply.body.data = std::span(binary.bytes()).first(0x1000);
  f.device.Feed(record);
  ASSERT_NE(f.device.discovery(), nullptr);
  EXPECT_EQ(f.device.discovery()->ips.size(), 8u);
  EXPECT_FALSE(f.device.discovery()->gc);  // it lies behind what was kept
  EXPECT_EQ(f.device.warnings().back().text,
            "the trace keeps 4096 of 10240 bytes of the discovery table");
}

TEST(Device, RsmuWindowShowsTheRealTarget) {
  Feeder f;
  Connected(f);
  Discover(f);
  const uint64_t strap2 = f.At("regRCC_DEV0_EPF2_STRAP2");
  f.W("regBIF_BX_PF0_RSMU_INDEX", static_cast<uint32_t>(strap2));
  f.R("regBIF_BX_PF0_RSMU_DATA", 0x1234);
  f.W("regBIF_BX_PF0_RSMU_INDEX", static_cast<uint32_t>(strap2));
  f.W("regBIF_BX_PF0_RSMU_DATA", 0x5678);
  const RegisterState* state = f.device.registers().Find("regRCC_DEV0_EPF2_STRAP2");
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(state->via, Via::kRsmuWindow);
  EXPECT_EQ(state->last_read.value, 0x1234u);
  EXPECT_EQ(state->last_write.value, 0x5678u);
  EXPECT_EQ(state->writes, 1u);
}

TEST(Device, WindowBeforeItsIndexIsAWarningNotAGuess) {
  Feeder f;
  Connected(f);
  f.Read(5, 4, 0xdeadbeef);
  ASSERT_EQ(f.device.warnings().size(), 1u);
  EXPECT_EQ(f.device.warnings()[0].rule, "window");
  EXPECT_EQ(f.device.warnings()[0].call, f.call);
  EXPECT_TRUE(f.device.vram().Touched().empty());
  f.Write(5, 0, 0x80001000);  // index without its high half
  f.Read(5, 4, 0xdeadbeef);
  EXPECT_EQ(f.device.warnings().size(), 2u);
  f.Write(5, 24, 0);
  f.Read(5, 4, 0xcafe);
  EXPECT_EQ(f.device.vram().U32(0x1000), 0xcafeu);
  f.Write(5, 0, 0x3011c);  // bit 31 clear: a register
  f.Read(5, 4, 0xA0000008);
  EXPECT_EQ(f.device.registers().Value("SCRATCH_REG7"), 0xA0000008u);
}

TEST(Device, PcieWindowOfAnotherDie) {
  amd::DiscoveryBinary b;
  b.Ip(amd::kHwGc, 0, {9, 4, 3}, {0x2000, 0xA000});
  b.Ip(amd::kHwNbif, 0, {7, 9, 0}, {0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000, 0, 0, 0x10000});
  Feeder f;
  Connected(f);
  f.Read(0, kVram - 0x10000, b.bytes());
  const uint64_t fence = f.At("regXCC_DOORBELL_FENCE");
  f.W("regBIF_BX0_PCIE_INDEX2", static_cast<uint32_t>(fence));
  f.W("regBIF_BX0_PCIE_INDEX2_HI", 2 | 1 << 2);
  f.W("regBIF_BX0_PCIE_DATA2", 0x77);
  const RegisterState* die2 = f.device.registers().Find(fence | 2ull << 34);
  ASSERT_NE(die2, nullptr);
  EXPECT_EQ(die2->die, 2);
  EXPECT_EQ(die2->value, 0x77u);
  EXPECT_EQ(die2->name(), "regXCC_DOORBELL_FENCE");
  EXPECT_EQ(f.device.registers().Find(fence), nullptr);
}

TEST(Device, HdpFlushAddressIsLearntFromTheRegister) {
  Feeder f;
  Connected(f);
  Discover(f);
  f.R("regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", 0x7f000);
  f.Write(5, 0x7f000, 0);
  EXPECT_EQ(f.device.registers().Find(uint64_t{0x7f000})->name(), "HDP flush");
  EXPECT_TRUE(f.device.registers().Unnamed().empty());
}

TEST(Device, HistoryPairsAndFoldedPolls) {
  Feeder f;
  Connected(f);
  Discover(f);
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32", 0);
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32", 2);
  bool found = false;
  for (const RegisterPair& pair : f.device.registers().Pairs()) {
    if (pair.name == "regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR") {
      found = true;
      EXPECT_EQ(pair.value(), 0x200000000u);
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(f.device.gpuvm().va_base(), 0x200000000000u);

  for (int i = 0; i < 1000; ++i) f.R("regCP_STAT", 5);
  f.R("regCP_STAT", 0);
  const RegisterState* stat = f.device.registers().Find("regCP_STAT");
  EXPECT_EQ(stat->reads, 1001u);
  EXPECT_EQ(stat->history.total(), 2u);
  for (uint32_t i = 0; i < 500; ++i) f.W("regGRBM_GFX_CNTL", i);
  size_t gap = 0;
  const auto samples = f.device.registers().Find("regGRBM_GFX_CNTL")->history.All(&gap);
  EXPECT_EQ(samples.size(), 64u);
  EXPECT_EQ(gap, 16u);
  EXPECT_EQ(samples.front().value, 0u);
  EXPECT_EQ(samples.back().value, 499u);
}

TEST(Device, RepeatRecordCountsAllItsCalls) {
  Feeder f;
  Connected(f);
  f.Read(5, 0x4b8c, 0x2480);
  const uint64_t before = f.call;
  trace::RepeatedCall one;
  one.request.header = {static_cast<uint8_t>(Command::kMmioRead), 0, 5, 0x4b8c, 4, 0};
  trace::ReplyView reply;
  const std::vector<uint8_t> body = Feeder::Bytes(0x2480, 4);
  reply.body.size = 4;
  reply.body.data = body;
  one.reply = reply;
  trace::Record record;
  record.kind = trace::Record::Kind::kRepeat;
  record.call = before + 1;
  record.time_ns = f.now_ns;
  record.last_time_ns = f.now_ns + 1000;
  record.pattern = std::span(&one, 1);
  record.issued = record.answered = 5'000'000;
  f.device.Feed(record);
  const RegisterState* rptr = f.device.registers().Find("SDMA0_QUEUE0_RB_RPTR");
  EXPECT_EQ(rptr->reads, 5'000'001u);
  EXPECT_EQ(rptr->last_read.at.call, before + 5'000'000);
  EXPECT_EQ(f.device.now().call, before + 5'000'000);
  EXPECT_EQ(f.device.calls(), before + 5'000'000);
}

// The writer counts a request into the run before its answer is there; the answer that ends the
// run is another one and comes by itself.
TEST(Device, TheAnswerThatEndsARunCounts) {
  Feeder f;
  Connected(f);
  f.Read(5, 0x4b8c, 0x2480);
  const uint64_t before = f.call;
  trace::RepeatedCall one;
  one.request.header = {static_cast<uint8_t>(Command::kMmioRead), 0, 5, 0x4b8c, 4, 0};
  trace::ReplyView reply;
  const std::vector<uint8_t> body = Feeder::Bytes(0x2480, 4);
  reply.body.size = 4;
  reply.body.data = body;
  one.reply = reply;
  trace::Record record;
  record.kind = trace::Record::Kind::kRepeat;
  record.call = before + 1;
  record.time_ns = f.now_ns;
  record.last_time_ns = f.now_ns + 1000;
  record.pattern = std::span(&one, 1);
  record.issued = 1000;
  record.answered = 999;
  f.device.Feed(record);
  const RegisterState* rptr = f.device.registers().Find("SDMA0_QUEUE0_RB_RPTR");
  EXPECT_EQ(rptr->reads, 1000u);
  EXPECT_EQ(rptr->value, 0x2480u);
  f.call = before + 1000;
  f.Reply(4, 0, Feeder::Bytes(0x24c4, 4));
  rptr = f.device.registers().Find("SDMA0_QUEUE0_RB_RPTR");
  EXPECT_EQ(rptr->reads, 1001u);
  EXPECT_EQ(rptr->value, 0x24c4u);
  EXPECT_EQ(rptr->last_read.at.call, before + 1000);
  EXPECT_EQ(f.device.calls(), before + 1000);
}

TEST(Device, OutOfRangeWriteIsNotApplied) {
  Feeder f;
  Connected(f, 256 << 20);
  f.Write(0, (256 << 20) - 4, 1, 8);
  EXPECT_TRUE(f.device.vram().Touched().empty());
  ASSERT_EQ(f.device.warnings().size(), 1u);
  EXPECT_EQ(f.device.warnings()[0].rule, "bar-range");
  f.Write(0, ~0ull - 2, 1, 8);
  EXPECT_EQ(f.device.warnings().size(), 2u);
}

TEST(Device, RefusedBarsAndRegions) {
  Feeder f;
  f.Connect();
  f.Request(Command::kMapBar, 1, 0);
  f.Reply(0, 0, {}, 1);
  EXPECT_EQ(f.device.bars().Find(1)->refused, "no reason given");
  f.Request(Command::kMapSysmemFd, 0, 0x4000);
  f.Reply(4, 0, {'f', 'u', 'l', 'l'}, 1);
  ASSERT_EQ(f.device.sysmem().refusals().size(), 1u);
  EXPECT_EQ(f.device.sysmem().refusals()[0].text, "full");
}

TEST(Device, BusMasterToggles) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x75501002);
  EXPECT_EQ(f.device.vendor(), Vendor::kAmd);
  EXPECT_EQ(f.device.gc(), (amd::IpVersion{12, 0, 1}));  // assumed from the PCI device
  EXPECT_TRUE(f.device.registers().map().assumed());
  f.CfgRead(4, 2, 0x0007);
  f.CfgWrite(4, 2, 0x0003);
  f.CfgRead(4, 2, 0x0003);
  f.CfgRead(4, 2, 0x0003);
  f.CfgWrite(4, 2, 0x0007);
  const auto& toggles = f.device.bars().bus_master();
  ASSERT_EQ(toggles.size(), 2u);
  EXPECT_FALSE(toggles[0].on);
  EXPECT_TRUE(toggles[1].on);
  EXPECT_EQ(f.device.bars().command(), 0x0007);
}

TEST(Device, SysmemContentOverTcp) {
  Feeder f;
  f.Connect("tcp");
  f.Request(Command::kMapSysmem, 0, 0x3000, 0);
  std::vector<uint8_t> pages;
  for (const uint64_t page : {0x100000ull, 0x101000ull, 0x200000ull}) {
    const auto bytes = Feeder::Bytes(page, 8);
    pages.insert(pages.end(), bytes.begin(), bytes.end());
  }
  f.Reply(24, 7, pages);
  const Region* region = f.device.sysmem().Find(7);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->granted, 0x3000u);
  ASSERT_EQ(region->ranges.size(), 2u);
  EXPECT_EQ(region->ranges[0].length, 0x2000u);
  f.Request(Command::kSysmemWrite, 7, 0x100, 8, 0, Feeder::Bytes(0x1122334455667788, 8));
  EXPECT_EQ(region->shadow.U64(0x100), 0x1122334455667788u);
  EXPECT_EQ(f.device.sysmem().Locate(0x200010)->offset, 0x2010u);
  EXPECT_FALSE(f.device.sysmem().Locate(0x102000));
  f.Request(Command::kSysmemWrite, 7, 0x2ff0, 0x20, 0, std::vector<uint8_t>(0x20));
  EXPECT_EQ(f.device.warnings().back().rule, "sysmem-range");
}

TEST(Device, FreshRegionHoldsItsAddressTable) {
  Feeder f;
  f.Connect();
  f.Region(0, 0x4000, {{0x100000000, 0x4000}});
  const Region* region = f.device.sysmem().Find(0);
  ASSERT_NE(region, nullptr);
  EXPECT_TRUE(region->by_descriptor);
  EXPECT_EQ(region->shadow.U64(0), 0x100000000u);
  EXPECT_EQ(region->shadow.OriginOf(0).origin, Origin::kTable);
  EXPECT_EQ(region->shadow.OriginOf(16).origin, Origin::kTable);
  EXPECT_EQ(region->shadow.U32(32), std::nullopt);
  f.Snapshot(0, 0, Feeder::Bytes(0x55, 8));
  EXPECT_EQ(region->shadow.OriginOf(0).origin, Origin::kSnapshot);
  f.Snapshot(9, 0, {1});
  EXPECT_EQ(f.device.warnings().back().rule, "snapshot");
  f.Connect();  // TinyGPU.app frees the regions of a client that left
  EXPECT_TRUE(f.device.sysmem().regions().empty());
}

// amdev.py asserts the signature; without the warning the trace just stops there.
TEST(Device, NoDiscoveryTableWhereTheDriverLooksForIt) {
  Feeder bulk;
  Connected(bulk);
  bulk.Read(0, kVram - 0x10000, std::vector<uint8_t>(0x2800));
  ASSERT_EQ(bulk.device.warnings().size(), 1u);
  EXPECT_EQ(bulk.device.warnings()[0].rule, "discovery");
  EXPECT_EQ(bulk.device.warnings()[0].call, bulk.call);
  EXPECT_EQ(bulk.device.warnings()[0].text,
            "no discovery table at VRAM 0x3ffff0000: 0x0 where its signature 0x28211407 belongs; "
            "the client fails with \"discovery signatures mismatch\"");

  Feeder window;
  Connected(window, 256 << 20);
  for (uint64_t at = kVram - 0x10000; at < kVram - 0x10000 + 0x20; at += 4) {
    window.Write(5, 0x18, at >> 31);
    window.Write(5, 0, (at & 0x7fffffff) | 0x80000000);
    window.Read(5, 4, 0xffffffff);
  }
  ASSERT_EQ(window.device.warnings().size(), 1u);
  EXPECT_THAT(window.device.warnings()[0].text,
              ::testing::StartsWith("no discovery table at VRAM 0x3ffff0000: 0xffffffff where"));

  Feeder good;
  Connected(good);
  Discover(good);
  EXPECT_TRUE(good.device.warnings().empty());
}

// Field report B03: NVIDIA, registers all ones while configuration answers.
TEST(Link, NvidiaAllOnesWithHealthyConfig) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x2b8510de);
  f.Read(0, 0xa00, 0xffffffff);
  EXPECT_EQ(f.device.vendor(), Vendor::kNvidia);
  EXPECT_EQ(f.link().state(), LinkState::kAllOnes);
  EXPECT_TRUE(f.link().config_answers());
  ASSERT_EQ(f.link().ones().size(), 1u);
  EXPECT_EQ(f.link().RegisterName(f.link().ones()[0].first.header, true), "NV_PMC_BOOT_42");
  EXPECT_FALSE(f.link().ones()[0].good);
  f.CfgRead(4, 2, 0x0400);
  EXPECT_EQ(f.link().state(), LinkState::kMemoryOff);
  f.CfgRead(4, 2, 0x0403);
  EXPECT_EQ(f.link().state(), LinkState::kAllOnes);
  f.CfgRead(0, 4, 0xffffffff);
  EXPECT_EQ(f.link().state(), LinkState::kDeviceGone);
}

// Field report B03, second input: the write after which BOOT_0 turned to all ones, and the latency.
TEST(Link, TransitionNamesTheWriteAndTheLatency) {
  Feeder f;
  f.Connect();
  f.CfgRead(0, 4, 0x118410de);
  for (int i = 0; i < 100; ++i) f.Read(0, 0, 0x0e4040a2, 4, 10'000);
  const uint64_t good = f.call;
  f.Write(0, 0x1620, 1);
  for (int i = 0; i < 10; ++i) f.Read(0, 0, 0xffffffff, 4, 43'000'000);
  ASSERT_EQ(f.link().ones().size(), 1u);
  const LinkWatch::OnesRegister& t = f.link().ones()[0];
  EXPECT_EQ(f.link().RegisterName(t.first.header, true), "NV_PMC_BOOT_0");
  ASSERT_TRUE(t.good);
  EXPECT_EQ(t.good->seq, good);
  EXPECT_EQ(t.good->value, 0x0e4040a2u);
  EXPECT_EQ(t.good->latency_ns, 10'000u);
  EXPECT_EQ(t.first.seq, good + 2);
  EXPECT_EQ(t.first.latency_ns, 43'000'000u);
  EXPECT_EQ(t.count, 10u);
  EXPECT_EQ(t.last_seq, good + 11);
  EXPECT_EQ(t.writes_between, 1u);
  ASSERT_EQ(t.writes.size(), 1u);
  EXPECT_EQ(t.writes[0].header.arg0, 0x1620u);
  EXPECT_EQ(t.good_again, 0u);
}

TEST(Link, AllOnesInVramDataAreNoSign) {
  Feeder f;
  Connected(f);
  f.Read(0, 0x5000, ~0ull, 8);
  EXPECT_EQ(f.link().state(), LinkState::kAnswering);
  EXPECT_EQ(f.link().ones_reads(), 0u);
}

// One register may hold all ones for reasons of its own: while others answer, the link is fine.
TEST(Link, OneRegisterOfOnesAmongOthersThatAnswer) {
  Feeder f;
  Connected(f);
  f.R("regSCRATCH_REG7", 1);
  f.Read(5, 0x1a004, 0xffffffff);
  const uint64_t ones = f.call;
  EXPECT_EQ(f.link().state(), LinkState::kAllOnes);
  f.R("regSCRATCH_REG7", 2);
  EXPECT_EQ(f.link().state(), LinkState::kAnswering);
  EXPECT_EQ(f.link().last_good_read(), ones + 1);
  ASSERT_EQ(f.link().ones().size(), 1u);
  EXPECT_EQ(f.link().ones()[0].good_again, 0u);
  f.Read(5, 0x1a004, 3);
  EXPECT_EQ(f.link().ones()[0].good_again, ones + 2);
}

// What was written as all ones reads so.
TEST(Link, MasksThatReadBackAsWritten) {
  Feeder f;
  Connected(f);
  f.Write(5, 0x1a004, 0xffffffff);
  for (int i = 0; i < 20; ++i) f.Read(5, 0x1a004, 0xffffffff);
  EXPECT_EQ(f.link().state(), LinkState::kAnswering);
  EXPECT_TRUE(f.link().ones().empty());
}

TEST(Faults, StatusAddressAndClear) {
  Feeder f;
  Connected(f);
  Discover(f);
  f.R("regGCVM_L2_PROTECTION_FAULT_STATUS_LO32", 13u << 9 | 1u << 18 | 1u << 4);
  f.R("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", 2);
  f.R("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", 0x00001234);
  ASSERT_EQ(f.device.faults().all().size(), 1u);
  const Fault& fault = f.device.faults().all()[0];
  EXPECT_EQ(fault.va(), 0x200001234000u);
  EXPECT_EQ(fault.text, "write by SDMA0, entry not valid, vmid 0");
  EXPECT_FALSE(fault.cleared);
  f.W("regGCVM_L2_PROTECTION_FAULT_CNTL", 1);
  EXPECT_TRUE(f.device.faults().all()[0].cleared);
}

TEST(Ih, EntriesReadAndThrownAway) {
  Feeder f;
  Connected(f);
  Discover(f);
  f.W("regIH_RB_RPTR", 0);
  // A wait: handler round with one entry.
  f.R("regIH_RB_WPTR", 8 << 2);
  f.R("regIH_RB_RPTR", 0);
  const uint32_t entry[8] = {10u | 55u << 8, 0, 0, 0, 1, 2, 3, 4};
  for (int i = 0; i < 8; ++i) f.Read(0, 0x3000 + i * 4, entry[i]);
  f.R("regIH_RB_WPTR", 8 << 2);
  f.W("regIH_RB_RPTR", 8);
  const Ih& ih = f.device.ih();
  ASSERT_EQ(ih.interrupts().size(), 1u);
  EXPECT_EQ(ih.interrupts()[0].meaning.text, "GFX SDMA_QUEUE_HANG");
  EXPECT_EQ(ih.errors(), 1u);
  EXPECT_EQ(ih.discarded(), 0u);
  EXPECT_EQ(ih.handler_rounds(), 1u);
  EXPECT_EQ(ih.drains(), 0u);
  // A synchronize: three entries jumped over.
  f.R("regIH_RB_WPTR", 32 << 2);
  f.W("regIH_RB_RPTR", 32);
  EXPECT_EQ(ih.drains(), 1u);
  EXPECT_EQ(ih.discarded(), 3u);
  // Overflow, and a pointer that wraps.
  f.R("regIH_RB_WPTR", 8 << 2 | 1);
  EXPECT_EQ(ih.overflows(), 1u);
  f.W("regIH_RB_RPTR", 8);
  EXPECT_EQ(ih.discarded(), 3u + (0x10000u - 32 + 8) / 8);
}

TEST(Smu, DialogueByName) {
  Feeder f;
  Connected(f);
  Discover(f);
  const auto send = [&](uint32_t message, uint32_t argument) {
    f.W("mmMP1_SMN_C2PMSG_90", 0);
    f.W("mmMP1_SMN_C2PMSG_82", argument);
    f.W("mmMP1_SMN_C2PMSG_66", message);
  };
  send(0x1f, 2u << 16 | 0xff);
  f.R("mmMP1_SMN_C2PMSG_90", 1);
  f.R("mmMP1_SMN_C2PMSG_82", 4);
  send(0x1a, 0);
  for (int i = 0; i < 1000; ++i) f.R("mmMP1_SMN_C2PMSG_90", 0);
  const auto& list = f.device.smu().exchanges().first();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "GetDpmFreqByIndex");
  EXPECT_EQ(list[0].argument_text, "UCLK count");
  EXPECT_TRUE(list[0].ok());
  EXPECT_EQ(list[0].result, 4u);
  EXPECT_EQ(list[1].name, "SetSoftMaxByFreq");
  EXPECT_TRUE(list[1].unanswered());
  EXPECT_EQ(list[1].polls, 1000u);
  EXPECT_EQ(f.device.smu().unanswered(), 1u);
}

TEST(Psp, RingCommandWithItsStatus) {
  Feeder f;
  Connected(f);
  Discover(f);
  const uint64_t mc = 0x8000000000;
  f.R("regMMMC_VM_FB_LOCATION_BASE", 0x8000);
  EXPECT_EQ(f.device.gpuvm().mc_base(), mc);
  f.W("regMPASP_SMN_C2PMSG_69", 0x87000);
  f.W("regMPASP_SMN_C2PMSG_70", 0x80);
  f.W("regMPASP_SMN_C2PMSG_64", 0x20000);
  f.R("regMPASP_SMN_C2PMSG_64", 0x80000000);
  f.Write(0, 0x100000, std::vector<uint8_t>(0x2000, 0xab));
  std::vector<uint8_t> command(0x400, 0);
  StoreLe<uint32_t>(command.data() + 0x08, 6);
  StoreLe<uint32_t>(command.data() + 0x24, 0x1ff0);
  StoreLe<uint32_t>(command.data() + 0x28, 89);
  std::vector<uint8_t> frame(0x40, 0);
  StoreLe<uint64_t>(frame.data() + 0x00, mc + 0x85000);
  StoreLe<uint64_t>(frame.data() + 0x0c, mc + 0x86000);
  StoreLe<uint32_t>(frame.data() + 0x14, 0x11);
  f.R("regMPASP_SMN_C2PMSG_67", 0x10);
  f.Write(0, 0x85000, command);
  f.Write(0, 0x87040, frame);
  f.W("regMPASP_SMN_C2PMSG_67", 0x20);
  f.Read(0, 0x86000, 1);
  f.Read(0, 0x86000, 0x11);
  StoreLe<uint32_t>(command.data() + 0x360, 0xffff0006);
  f.Read(0, 0x85000, command);
  const auto& list = f.device.psp().exchanges().first();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].text, "create ring");
  EXPECT_TRUE(list[0].done);
  EXPECT_EQ(list[1].text, "LOAD_IP_FW RS64_MEC");
  EXPECT_EQ(list[1].fence, 0x11u);
  EXPECT_EQ(list[1].polls, 2u);
  EXPECT_TRUE(list[1].done);
  EXPECT_EQ(list[1].status, 0xffff0006u);
  EXPECT_EQ(list[1].image_size, 0x1ff0u);
}

// A record of a few bytes can stand for thousands of registers: bounded in all, and said.
TEST(Device, WideWritesOfZerosAreBounded) {
  Feeder f;
  f.Connect();
  f.Write(5, 0x3011c, 0xa0000008);
  for (int i = 0; i < 4000; ++i)
    f.Request(wire::Command::kMmioWrite, 5, 0x10000, 0x10000, 0, {}, true);
  for (int i = 0; i < 4000; ++i) f.Request(wire::Command::kMmioWrite, 2, 0, 0x1000, 0, {}, true);
  EXPECT_LE(f.device.registers().accesses(), (1u << 18) + 1u);
  EXPECT_EQ(f.device.registers().Value("SCRATCH_REG7"), 0xa0000008u) << "outside of those";
  const auto& warnings = f.device.warnings();
  const auto zeros = std::find_if(warnings.begin(), warnings.end(),
                                  [](const Warning& w) { return w.rule == "zeros"; });
  ASSERT_NE(zeros, warnings.end());
  // 16,384 registers each: the seventeenth is too much (the first call is another one).
  EXPECT_EQ(zeros->call, 18u);
}

}  // namespace
}  // namespace tg::model
