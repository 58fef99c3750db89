// Names and meanings behind the lines of the log, and who wrote a page-table entry.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "schemas/trace/trace.pb.h"
#include "tests/decoder/program.h"
#include "tests/decoder/wire_trace.h"

namespace tg::testing {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// The line of the log that begins with this record's number.
std::string LineOf(const std::string& log, uint64_t seq) {
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    uint64_t number = 0;
    std::istringstream words(line);
    if (words >> number && number == seq) return line;
  }
  return "no line " + std::to_string(seq) + " in:\n" + log;
}

// A card whose table was not read: names by the bases that gfx11 and gfx12 share (B08, B09).
TEST(Names, RegistersWithFieldsMailboxesAndDoorbells) {
  WireTrace trace(TempFile("names.pb"));
  trace.Read(5, 0x3011c, 0xa0000008);
  trace.Read(5, 0x378c, 0x5ff0);
  trace.Write(5, 0x58a48, 0x000200ff);
  trace.Write(5, 0x58a08, 0x1f);  // GetDpmFreqByIndex of MP1 13.0.0
  trace.Read(5, 0x58a68, 1);
  trace.Read(5, 0x58a68, 0xfc);
  trace.Write(2, 0x800, 0x44, 8);
  trace.Write(2, 0x18, 0x55, 8);
  trace.Request({6, 0, 5, 0x30118, 4, 0});  // no answer comes
  trace.Disconnect("server");
  trace.Close();
  const std::string log = RunDecoder({"log", trace.path()}).out;
  EXPECT_THAT(LineOf(log, 1), EndsWith("= 0xa0000008  <10 us>  regSCRATCH_REG7"));
  EXPECT_THAT(LineOf(log, 2), EndsWith("mmRCC_CONFIG_MEMSIZE"));
  EXPECT_THAT(LineOf(log, 3), EndsWith("mmMP1_SMN_C2PMSG_82"));
  EXPECT_THAT(LineOf(log, 4),
              EndsWith("<- 0x0000001f  mmMP1_SMN_C2PMSG_66: SMU GetDpmFreqByIndex(UCLK count)"));
  EXPECT_THAT(LineOf(log, 5), EndsWith("mmMP1_SMN_C2PMSG_90: SMU ok"));
  EXPECT_THAT(LineOf(log, 6), EndsWith("mmMP1_SMN_C2PMSG_90: SMU rejected: busy"));
  EXPECT_THAT(LineOf(log, 7), HasSubstr("<- 0x0000000000000044  SDMA0 doorbell"));
  EXPECT_THAT(LineOf(log, 8), HasSubstr("<- 0x0000000000000055  COMPUTE0 doorbell"));
  EXPECT_THAT(LineOf(log, 9), EndsWith("= ? (no answer)  regSCRATCH_REG6"));

  const std::string bare = RunDecoder({"log", "--no-names", trace.path()}).out;
  EXPECT_THAT(LineOf(bare, 1), EndsWith("= 0xa0000008  <10 us>"));

  std::istringstream lines(
      RunDecoder({"log", "--format", "json", "-c", "MMIO_WRITE", trace.path()}).out);
  std::vector<json> calls;
  for (std::string line; std::getline(lines, line);) {
    json j = json::parse(line);
    if (j["kind"] == "call") calls.push_back(std::move(j));
  }
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[1]["name"], "mmMP1_SMN_C2PMSG_66");
  EXPECT_EQ(calls[1]["about"], "mmMP1_SMN_C2PMSG_66: SMU GetDpmFreqByIndex(UCLK count)");
  EXPECT_TRUE(calls[2]["name"].is_null());
  EXPECT_THAT(calls[2]["about"].get<std::string>(), HasSubstr("SDMA0 doorbell"));
}

TEST(Names, FieldsOfAnEngineRegister) {
  WireTrace trace(TempFile("fields.pb"));
  // regSDMA0_QUEUE0_RB_CNTL, gfx11 base: rb_enable bit 0, rb_size bits 5:1, rb_priv bit 23
  // (sdma 6.0 register header).
  trace.Write(5, 0x4b80, 0x0080002d);
  trace.Close();
  const std::string line = LineOf(RunDecoder({"log", trace.path()}).out, 1);
  EXPECT_THAT(line, HasSubstr("regSDMA0_QUEUE0_RB_CNTL: rb_enable=1 rb_size=0x16"));
  EXPECT_THAT(line, HasSubstr("rb_priv=1"));
}

// What is reached through the RSMU window has its own name; the window's, too.
TEST(Names, ThroughAWindow) {
  WireTrace trace(TempFile("window.pb"));
  // With the shared base 0 for NBIO, RSMU_INDEX and RSMU_DATA lie at dwords 0x14 and 0x15; the
  // target is SCRATCH_REG7 again, reached the long way.
  trace.Write(5, 0x50, 0x3011c);
  trace.Read(5, 0x54, 0xa0000007);
  trace.Close();
  const std::string log = RunDecoder({"log", trace.path()}).out;
  EXPECT_THAT(LineOf(log, 1), EndsWith("regBIF_BX_PF0_RSMU_INDEX"));
  EXPECT_THAT(LineOf(log, 2), EndsWith("regBIF_BX_PF0_RSMU_DATA, -> regSCRATCH_REG7"));
}

TEST(Names, RunsKeepTheirNames) {
  WireTrace trace(TempFile("runs.pb"));
  for (int i = 0; i < 100; i++) {
    trace.Read(5, 0x4b8c, 0x2480);
    trace.Read(5, 0x4b94, 0x24c4);
  }
  trace.Close();
  const std::string line = LineOf(RunDecoder({"log", trace.path()}).out, 1);
  EXPECT_THAT(line, HasSubstr("x100 rounds of 2"));
  EXPECT_THAT(line, EndsWith("regSDMA0_QUEUE0_RB_RPTR | regSDMA0_QUEUE0_RB_WPTR"));
}

TEST(Names, NvidiaHasNoAmdNames) {
  WireTrace trace(TempFile("nvidia.pb"));
  trace.Request({3, 0, 0, 0, 4, 0});
  trace.Reply({0, 0x2b8510de, 0});
  trace.Read(0, 0xa00, 0xffffffff);
  trace.Read(5, 0x3011c, 0);
  trace.Close();
  const std::string log = RunDecoder({"log", trace.path()}).out;
  EXPECT_THAT(LineOf(log, 2), EndsWith("NV_PMC_BOOT_42"));
  EXPECT_THAT(log, Not(HasSubstr("SCRATCH")));
}

// Page tables of a gfx11 card as the driver writes them: a zeroed table, its entry in the parent,
// then pages. Page 3 is mapped to VRAM (valid, rwx: 0x71), cleared, and mapped elsewhere.
std::string PageTableTrace() {
  WireTrace trace(TempFile("tables.pb"));
  trace.Write(5, 0x3011c, 0xa0000008);  // 1: an AM card
  const std::vector<uint8_t> zeros(4096, 0);
  trace.Request({7, 0, 0, 0, 4096, 0}, zeros);          // 2
  trace.Request({7, 0, 0, 0x2000000, 4096, 0}, zeros);  // 3
  trace.Write(0, 0x0, 0x2000001, 8);                    // 4
  trace.Request({7, 0, 0, 0x2001000, 4096, 0}, zeros);  // 5
  trace.Write(0, 0x2000000, 0x2001001, 8);              // 6
  trace.Request({7, 0, 0, 0x2002000, 4096, 0}, zeros);  // 7
  trace.Write(0, 0x2001000, 0x2002001, 8);              // 8
  trace.Write(0, 0x2002018, 0x2500071, 8);              // 9
  trace.Write(0, 0x2002018, 0, 8);                      // 10
  trace.Write(0, 0x2002018, 0x2600071, 8);              // 11
  trace.Close();
  return trace.path();
}

TEST(Names, PageTableEntriesByTheAddressTheyMap) {
  const std::string log = RunDecoder({"log", PageTableTrace()}).out;
  EXPECT_THAT(LineOf(log, 4), HasSubstr("PDB2[0] VA 0x200000000000 -> PDB1 at VRAM 0x2000000"));
  EXPECT_THAT(LineOf(log, 8), HasSubstr("PDB0[0] VA 0x200000000000 -> PTB at VRAM 0x2002000"));
  EXPECT_THAT(LineOf(log, 9), HasSubstr("PTB[3] VA 0x200000003000 -> VRAM 0x2500000, valid"));
  EXPECT_THAT(LineOf(log, 10), HasSubstr("PTB[3] VA 0x200000003000 -> nothing"));
  EXPECT_THAT(LineOf(log, 11), HasSubstr("PTB[3] VA 0x200000003000 -> VRAM 0x2600000, valid"));
}

TEST(Vm, WhoSetThisEntry) {
  const std::string path = PageTableTrace();
  // The trace goes in front or behind; options say the same.
  const ProgramResult r = RunDecoder({"vm", "who", "0x200000003123", path, "--format", "json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(RunDecoder({"vm", path, "who", "0x200000003123", "--format", "json"}).out, r.out);
  EXPECT_EQ(RunDecoder({"vm", path, "--who", "0x200000003123", "--format", "json"}).out, r.out);
  const json who = json::parse(r.out);
  EXPECT_EQ(who["end"], "mapped");
  EXPECT_EQ(who["target"]["address"], 0x2600123);
  ASSERT_EQ(who["levels"].size(), 4u);
  std::vector<std::vector<uint64_t>> seqs;
  for (const json& level : who["levels"]) {
    seqs.emplace_back();
    for (const json& write : level["writes"]) seqs.back().push_back(write["seq"]);
    EXPECT_EQ(level["writes_total"], level["writes"].size());
  }
  EXPECT_EQ(seqs, (std::vector<std::vector<uint64_t>>{{2, 4}, {3, 6}, {5, 8}, {7, 9, 10, 11}}));
  const json& pages = who["levels"][3]["writes"];
  EXPECT_EQ(pages[0]["entry"], 0);
  EXPECT_EQ(pages[0]["text"], "empty");
  EXPECT_EQ(pages[0]["size"], 4096);
  EXPECT_EQ(pages[1]["entry"], 0x2500071);
  EXPECT_EQ(pages[2]["entry"], 0);
  EXPECT_EQ(pages[3]["entry"], 0x2600071);
  EXPECT_EQ(pages[3]["offset"], 0x2002018);

  const std::string text = RunDecoder({"vm", "who", "0x200000003123", path}).out;
  EXPECT_THAT(text, HasSubstr("Who mapped 0x200000003123"));
  EXPECT_THAT(text, HasSubstr("0x0000000002500071  valid vram rwx"));
  EXPECT_THAT(text, HasSubstr("leads to       VRAM 0x2600123"));
}

TEST(Vm, AtAnEarlierRecord) {
  const std::string path = PageTableTrace();
  const auto walk = [&](const char* at) {
    return json::parse(
        RunDecoder({"vm", "walk", "0x200000003000", path, "--at", at, "--format", "json"}).out);
  };
  EXPECT_EQ(walk("7")["end"], "not mapped (entry without VALID)");
  EXPECT_EQ(walk("7")["levels"].size(), 3u);
  EXPECT_EQ(walk("9")["target"]["address"], 0x2500000);
  EXPECT_EQ(walk("10")["end"], "not mapped (entry without VALID)");
  EXPECT_EQ(walk("11")["target"]["address"], 0x2600000);
  const json map = json::parse(RunDecoder({"vm", path, "--at", "9", "--format", "json"}).out);
  ASSERT_EQ(map["mappings"].size(), 1u);
  EXPECT_EQ(map["mappings"][0]["va"], 0x200000003000);
  EXPECT_EQ(map["mappings"][0]["last_seq"], 9);
}

TEST(Vm, UsageErrors) {
  const std::string path = PageTableTrace();
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"vm"},
                                             {"vm", "who", path},
                                             {"vm", "walk", "0x12", path, "0xzz"},
                                             {"vm", "--walk", "12q", path},
                                             {"vm", path, path}}) {
    const ProgramResult r = RunDecoder(wrong);
    EXPECT_EQ(r.exit_code, 2) << wrong.size() << r.out;
    EXPECT_THAT(r.err, HasSubstr("rpcdecode: "));
  }
  EXPECT_EQ(RunDecoder({"vm", "walk", "0x12", path + ".not"}).exit_code, 3);
}

}  // namespace
}  // namespace tg::testing
