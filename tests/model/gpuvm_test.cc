#include "decoder/model/gpuvm.h"

#include <gtest/gtest.h>

#include "tests/model/feeder.h"

namespace tg::model {
namespace {

constexpr uint64_t kVa = amd::kVaStart;

// Page tables as the AM driver writes them on gfx12: root at 0, tables from 32 MiB on.
class Tables : public Feeder {
 public:
  Tables() {
    Connect();
    CfgRead(0, 4, 0x75501002);
    MapBar(0, 16ull << 30);
    MapBar(5, 512 << 10);
    Read(5, 0x378c, 16 << 10);
    W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 1);
    W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32", 0);
    Zeros(0);
  }
  void Zeros(uint64_t at) { Request(wire::Command::kMmioWrite, 0, at, 0x1000, 0, {}, true); }
  void Entry(uint64_t table, uint32_t index, uint64_t raw) { Write(0, table + index * 8, raw, 8); }
  // Root -> 0x2000000 -> 0x2001000 -> 0x2002000
  void Chain() {
    for (const uint64_t table : {0x2000000, 0x2001000, 0x2002000}) Zeros(table);
    Entry(0, 0, 0x2000001);
    Entry(0x2000000, 0, 0x2001001);
    Entry(0x2001000, 0, 0x2002001);
  }
};

TEST(Gpuvm, WalkOfASystemPage) {
  Tables t;
  t.Region(3, 0x4000, {{0x100000000, 0x4000}});
  t.Chain();
  t.Entry(0x2002000, 5, 0x80c0000100001077);
  const uint64_t writer = t.call;
  const Walk walk = t.device.gpuvm().WalkVa(kVa + 0x5123);
  EXPECT_EQ(walk.end, Walk::End::kMapped);
  EXPECT_EQ(walk.depth, 4);
  EXPECT_EQ(walk.steps[0].table, 0u);
  EXPECT_EQ(walk.steps[3].table, 0x2002000u);
  EXPECT_EQ(walk.steps[3].index, 5u);
  EXPECT_EQ(walk.steps[3].by.call, writer);
  EXPECT_EQ(walk.target.kind, VaTarget::Kind::kSysmem);
  EXPECT_EQ(walk.target.address, 0x100001123u);
  EXPECT_EQ(walk.target.region, 3u);
  EXPECT_EQ(walk.target.region_offset, 0x1123u);
  EXPECT_EQ(walk.target.contiguous, 0xeddu);
  EXPECT_EQ(t.device.gpuvm().Describe(kVa + 0x5123), "sysmem 3 + 0x1123");
  EXPECT_EQ(t.device.gpuvm().Describe(kVa + 0x6000), "not mapped (entry without VALID)");
  EXPECT_EQ(t.device.gpuvm().Describe(0x1000), "outside the address space");
  EXPECT_EQ(t.device.gpuvm().Describe(kVa + (1ull << 30)), "not mapped (entry without VALID)");
}

// amd-structs: a 2 MiB leaf whose address is not aligned to 2 MiB. Add, never OR.
TEST(Gpuvm, HugeLeafThatIsNotAligned) {
  Tables t;
  t.Chain();
  t.Entry(0x2001000, 1, 0x8000000002634671);
  const Walk walk = t.device.gpuvm().WalkVa(kVa + 0x200000 + 0x1fffff);
  EXPECT_EQ(walk.end, Walk::End::kMapped);
  EXPECT_EQ(walk.depth, 3);
  EXPECT_EQ(walk.target.kind, VaTarget::Kind::kVram);
  EXPECT_EQ(walk.target.address, 0x2634000u + 0x1fffff);
  EXPECT_EQ(walk.target.contiguous, 1u);
}

TEST(Gpuvm, EntryWrittenInHalvesAndUnmapped) {
  Tables t;
  t.Chain();
  t.Write(0, 0x2002000, 0x00001077);
  t.Write(0, 0x2002004, 0x80c00001);
  EXPECT_EQ(t.device.gpuvm().Translate(kVa).kind, VaTarget::Kind::kForeign);
  EXPECT_EQ(t.device.gpuvm().Translate(kVa).address, 0x100001000u);
  EXPECT_EQ(t.device.gpuvm().Describe(kVa), "DMA 0x100001000 (no region)");
  t.Entry(0x2002000, 0, 0x80c0000100001070);  // VALID taken away
  EXPECT_EQ(t.device.gpuvm().WalkVa(kVa).end, Walk::End::kNotValid);
}

TEST(Gpuvm, MappingsAreMergedByWhereTheyLead) {
  Tables t;
  t.Region(0, 0x8000, {{0x100000000, 0x4000}, {0x300000000, 0x4000}});
  t.Region(1, 0x4000, {{0x100004000, 0x4000}});
  t.Chain();
  // Region 0, both of its ranges, then region 1 right behind its first range in DMA addresses.
  for (uint64_t i = 0; i < 4; ++i) t.Entry(0x2002000, i, 0x80c0000100000077 + i * 0x1000);
  for (uint64_t i = 0; i < 4; ++i) t.Entry(0x2002000, 4 + i, 0x80c0000300000077 + i * 0x1000);
  for (uint64_t i = 0; i < 2; ++i) t.Entry(0x2002000, 8 + i, 0x80c0000100004077 + i * 0x1000);
  t.Entry(0x2001000, 1, 0x8000000002600671);
  t.Entry(0x2001000, 2, 0x8000000002800671);
  const auto list = t.device.gpuvm().Mappings();
  EXPECT_FALSE(list.truncated);
  EXPECT_EQ(list.tables, 4u);
  ASSERT_EQ(list.mappings.size(), 3u);
  EXPECT_EQ(list.mappings[0].va, kVa);
  EXPECT_EQ(list.mappings[0].size, 0x8000u);
  EXPECT_EQ(list.mappings[0].target.region, 0u);
  EXPECT_EQ(list.mappings[0].entries, 8u);
  EXPECT_EQ(list.mappings[1].target.region, 1u);
  EXPECT_EQ(list.mappings[1].size, 0x2000u);
  EXPECT_EQ(list.mappings[2].target.kind, VaTarget::Kind::kVram);
  EXPECT_EQ(list.mappings[2].size, 0x400000u);
  EXPECT_EQ(list.mappings[2].level, 2);
  EXPECT_LT(list.mappings[2].first_call, list.mappings[2].last_call);
}

TEST(Gpuvm, ReadThroughTheTables) {
  Tables t;
  t.Region(0, 0x4000, {{0x100000000, 0x4000}});
  t.Chain();
  t.Entry(0x2002000, 0, 0x80c0000100000077);
  t.Entry(0x2002000, 1, 0x8000000003000071);  // VRAM
  t.Snapshot(0, 0xff8, Feeder::Bytes(0x1111111122222222, 8));
  t.Write(0, 0x3000000, 0x33333333, 4);
  std::array<uint8_t, 12> out{};
  EXPECT_TRUE(t.device.gpuvm().Read(kVa + 0xff8, out));
  EXPECT_EQ(LoadLe<uint32_t>(out.data() + 8), 0x33333333u);
  EXPECT_EQ(t.device.gpuvm().U32(kVa + 0x1000), 0x33333333u);
  EXPECT_EQ(t.device.gpuvm().U64(kVa + 0x1000), std::nullopt);
  EXPECT_EQ(t.device.gpuvm().U32(kVa + 0x2000), std::nullopt);
}

TEST(Gpuvm, TablesSharedByAllEntriesAreBounded) {
  Tables t;
  // Every entry of a level points at the one table of the next: 512^4 pages.
  for (uint64_t level = 0; level < 4; ++level) {
    std::vector<uint8_t> table(0x1000);
    const uint64_t entry = (level + 1) * 0x1000 + 1;
    for (size_t i = 0; i < 512; ++i) StoreLe<uint64_t>(table.data() + i * 8, entry);
    t.Write(0, level * 0x1000, table);
  }
  EXPECT_FALSE(t.device.gpuvm().FindCycle());
  const auto list = t.device.gpuvm().Mappings(1000);
  EXPECT_TRUE(list.truncated);
  EXPECT_LE(list.mappings.size(), 1000u);
  const Walk walk = t.device.gpuvm().WalkVa(kVa);
  EXPECT_EQ(walk.depth, 4);
}

// Field report B03: entries that read as 0xffffffffffffffff. They map nothing.
TEST(Gpuvm, AnEntryOfOnesIsNoEntry) {
  Tables t;
  t.Chain();
  t.Entry(0x2002000, 5, 0x80c0000100001077);
  const size_t before = t.device.gpuvm().Mappings().mappings.size();
  t.Read(0, 0x2002000 + 6 * 8, ~0ull, 8);
  const Walk walk = t.device.gpuvm().WalkVa(kVa + 0x6000);
  EXPECT_EQ(walk.end, Walk::End::kBadTable);
  EXPECT_EQ(walk.depth, 4);
  EXPECT_EQ(walk.steps[3].raw, ~0ull);
  EXPECT_EQ(walk.target.kind, VaTarget::Kind::kNone);
  EXPECT_EQ(t.device.gpuvm().Mappings().mappings.size(), before);
  // It was zeros when the client made the table; a read that finds ones there is told.
  ASSERT_FALSE(t.device.warnings().empty());
  EXPECT_EQ(t.device.warnings().back().rule, "read-back");
  EXPECT_EQ(t.device.warnings().back().call, t.call);
  EXPECT_EQ(t.device.warnings().back().text.substr(0, 60),
            "VRAM 0x2002030 reads all ones, though 0x0 was there (record ");
}

TEST(Gpuvm, TablesOutsideVramOrUnseen) {
  Tables t;
  t.Entry(0, 0, 0x7ffffffff000 | 1);  // 128 TiB
  EXPECT_EQ(t.device.gpuvm().WalkVa(kVa).end, Walk::End::kBadTable);
  t.Entry(0, 1, 0x5000003);  // in system memory
  EXPECT_EQ(t.device.gpuvm().WalkVa(kVa + (512ull << 30)).end, Walk::End::kBadTable);
  t.Entry(0, 2, 0x6000001);  // never seen
  EXPECT_EQ(t.device.gpuvm().WalkVa(kVa + (1024ull << 30)).end, Walk::End::kNotObserved);
  const auto list = t.device.gpuvm().Mappings();
  EXPECT_TRUE(list.mappings.empty());
  EXPECT_EQ(list.unseen_tables, 1u);
}

TEST(Gpuvm, RegionCutInTinyRangesIsBounded) {
  Tables t;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (uint64_t i = 0; i < 32; ++i) ranges.emplace_back(0x100000000 + i * 2, 1);
  t.Region(0, 0x4000, ranges);
  t.Entry(0, 0, 0x80c0000100000077);  // a 512 GiB leaf over them
  const auto list = t.device.gpuvm().Mappings(100);
  EXPECT_LE(list.mappings.size(), 100u);
}

TEST(Gpuvm, XgmiBaseIsTakenOff) {
  Tables t;
  t.Chain();
  EXPECT_EQ(t.device.gpuvm().xgmi_base(), 0u);
  EXPECT_EQ(t.device.gpuvm().root(), 0u);
  EXPECT_FALSE(t.device.gpuvm().root_assumed());
}

// A root whose every entry points at itself, and a table below that points back.
TEST(Gpuvm, TablesThatAreReachedThroughThemselves) {
  Feeder f;
  f.Connect();
  f.MapBar(0, 1 << 28);
  f.MapBar(5, 1 << 20);
  std::vector<uint8_t> page(4096);
  for (size_t i = 0; i < page.size(); i += 8) page[i] = 1;
  f.Write(0, 0, page);
  const auto cycle = f.device.gpuvm().FindCycle();
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->table, 0u);
  EXPECT_EQ(cycle->level, 0);
  EXPECT_EQ(cycle->index, 0u);
  EXPECT_EQ(cycle->call, f.call);
  const auto list = f.device.gpuvm().Mappings();
  EXPECT_EQ(list.circular, 512u);
  EXPECT_TRUE(list.mappings.empty());
  EXPECT_FALSE(list.truncated);

  // 0 -> 0x1000 -> 0x2000 -> 0x1000: found two levels down.
  f.Write(0, 0, std::vector<uint8_t>(4096));
  f.Write(0, 0x1000, std::vector<uint8_t>(4096));
  f.Write(0, 0x2000, std::vector<uint8_t>(4096));
  f.Write(0, 0x18, 0x1001, 8);
  f.Write(0, 0x1000, 0x2001, 8);
  EXPECT_FALSE(f.device.gpuvm().FindCycle());
  f.Write(0, 0x2008, 0x1001, 8);
  const auto deeper = f.device.gpuvm().FindCycle();
  ASSERT_TRUE(deeper);
  EXPECT_EQ(deeper->table, 0x1000u);
  EXPECT_EQ(deeper->level, 2);
  EXPECT_EQ(deeper->index, 1u);
  EXPECT_EQ(deeper->call, f.call);
  EXPECT_EQ(f.device.gpuvm().Mappings().circular, 1u);
}

}  // namespace
}  // namespace tg::model
