#include "replay/sim/hang.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

namespace tg::sim {
namespace {

TEST(HangSpec, NamesArgumentsAndCounts) {
  const HangRule stall = ParseHang("sdma-stall:after=3").value();
  EXPECT_EQ(stall.kind, HangKind::kSdmaStall);
  EXPECT_EQ(stall.after, 3u);
  EXPECT_EQ(stall.count, UINT64_MAX);
  const HangRule fault = ParseHang("page-fault:0x200001000000:stop:after=1:count=2").value();
  EXPECT_EQ(fault.va, 0x200001000000u);
  EXPECT_TRUE(fault.stop);
  EXPECT_EQ(fault.after, 1u);
  EXPECT_EQ(fault.count, 2u);
  const HangRule refuse = ParseHang("refuse:map_sysmem_fd:no slots: try later:after=37").value();
  EXPECT_EQ(refuse.command, 2);
  EXPECT_EQ(refuse.text, "no slots: try later");
  EXPECT_EQ(refuse.after, 37u);
  EXPECT_EQ(ParseHang("refuse:RESET").value().text, "");
  EXPECT_EQ(ParseHang("slow:250").value().delay_us, 250u);
  EXPECT_TRUE(ParseHang("sdma-stall:watchdog:after=2").value().other);
  EXPECT_FALSE(ParseHang("tlb-stuck").value().other);
  EXPECT_TRUE(ParseHang("tlb-stuck:semaphore").value().other);
  EXPECT_TRUE(ParseHang("ras:athub").value().other);
  EXPECT_EQ(ParseHang("shader-error").value().code, 1);  // ILLEGAL_INST
  EXPECT_EQ(ParseHang("shader-error:memviol").value().code, 2);
  EXPECT_EQ(ParseHang("bad-packet").value().code, 183);
  EXPECT_EQ(ParseHang("bad-packet:priv_instr:count=1").value().code, 185);
}

TEST(HangSpec, ErrorsSayWhatIsMissing) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no such way"},
      {"sdma-stal", "sdma-poll-never"},
      {"sdma-stall:3", "after=N"},
      {"fence-lost:3", "after=N"},
      {"ras:hub", "athub"},
      {"shader-error:sigill", "memviol"},
      {"bad-packet:opcode:opcode", "priv_reg"},
      {"sdma-stall:after=x", "not a number"},
      {"sdma-stall:after=", "not a number"},
      {"refuse", "needs a command"},
      {"refuse:NOPE", "needs a command"},
      {"slow", "microseconds"},
      {"slow:fast", "microseconds"},
      {"slow-kernel", "microseconds"},
      {"slow:99999999999", "microseconds"},
      {"page-fault:here", "address"},
  };
  for (const auto& [spec, words] : cases) {
    const auto rule = ParseHang(spec);
    ASSERT_FALSE(rule) << spec;
    EXPECT_EQ(rule.error().code, Error::Code::kUsage);
    EXPECT_NE(rule.error().message.find(words), std::string::npos) << rule.error().message;
  }
}

TEST(HangTable, HasEveryKindOnce) {
  std::set<HangKind> kinds;
  for (const HangInfo& info : HangTable()) {
    kinds.insert(info.kind);
    EXPECT_EQ(HangName(info.kind), info.name);
    EXPECT_FALSE(info.counts.empty() || info.effect.empty() || info.imitates.empty());
  }
  EXPECT_EQ(kinds.size(), HangTable().size());
}

// The documentation's table is this one.
TEST(HangTable, IsWhatTheDocumentationSays) {
  std::ifstream file(SIM_README);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(text.empty());
  for (const HangInfo& info : HangTable()) {
    const std::string row = "| `" + std::string(info.name) + std::string(info.argument) + "` | " +
                            std::string(info.counts) + " | " + std::string(info.effect) + " | " +
                            std::string(info.imitates) + " |";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

TEST(HangPlan, StrikesAfterAndForCount) {
  HangPlan plan;
  plan.Add(ParseHang("sdma-stall:after=2:count=2").value());
  std::string struck;
  for (int i = 0; i < 6; i++) struck += plan.Strike(HangKind::kSdmaStall) ? 'x' : '.';
  EXPECT_EQ(struck, "..xx..");
  EXPECT_EQ(plan.Strike(HangKind::kFenceLost), nullptr);
  const auto tallies = plan.Tallies();
  ASSERT_EQ(tallies.size(), 1u);
  EXPECT_EQ(tallies[0].seen, 6u);
  EXPECT_EQ(tallies[0].struck, 2u);
}

TEST(HangPlan, RulesOfOneKindCountForThemselves) {
  HangPlan plan;
  plan.Add(ParseHang("refuse:RESET:one:after=1").value());
  plan.Add(ParseHang("refuse:CFG_READ:two").value());
  const auto of = [](uint8_t command) {
    return [command](const HangRule& rule) { return rule.command == command; };
  };
  EXPECT_EQ(plan.Strike(HangKind::kRefuse, of(5)), nullptr);
  EXPECT_EQ(plan.Strike(HangKind::kRefuse, of(3))->text, "two");
  EXPECT_EQ(plan.Strike(HangKind::kRefuse, of(5))->text, "one");
}

}  // namespace
}  // namespace tg::sim
