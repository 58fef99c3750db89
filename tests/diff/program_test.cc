// `rpcdecode diff` as a program: exit codes, formats, options, bad input.
#include "tests/decoder/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/decoder/wire_trace.h"
#include "tests/diff/recorder.h"

namespace tg::diff {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Recorder;
using tg::testing::RunDecoder;

// A session of two copies and a launch; `size` bytes are what the second copy moves.
std::string Session(const std::string& name, uint32_t size = 0x1000, uint32_t scratch = 7) {
  Recorder r(name);
  r.Open();
  r.Boot();
  r.Queues();
  r.SdmaSubmit(1, 0);
  r.Timeline(1);
  r.W("regTCP_CNTL", scratch);
  r.SdmaSubmit(2, 1, true, size);
  r.Timeline(2);
  r.SdmaRead(r.sdma_wptr());
  r.ComputeSubmit(3, 2);
  r.Timeline(3);
  r.ComputeRead(r.compute_wptr());
  r.Finish();
  return r.Done();
}

std::string File(const std::string& name, const std::string& bytes) {
  const std::string path = tg::testing::TempFile(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(DiffProgram, EqualAndDifferent) {
  const std::string a = Session("a.pb"), b = Session("b.pb"), c = Session("c.pb", 0x2000);
  const auto equal = RunDecoder({"diff", a, b});
  EXPECT_EQ(equal.exit_code, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("\nno difference\n"));
  EXPECT_EQ(RunDecoder({"diff", a, a}).exit_code, 0);
  const auto different = RunDecoder({"diff", a, c});
  EXPECT_EQ(different.exit_code, 1);
  EXPECT_THAT(different.out, HasSubstr("first difference: value"));
  EXPECT_THAT(different.out,
              HasSubstr("packet 2 differs: A SDMA0 COPY_LINEAR 4096 bytes 0x160000000 -> "
                        "0x170000000; B SDMA0 COPY_LINEAR 8192 bytes 0x160000000 -> 0x170000000"));
  EXPECT_THAT(different.out, HasSubstr("A: the 20 events before"));
  EXPECT_THAT(different.out, HasSubstr("\n1 difference\n"));
  EXPECT_THAT(different.out, Not(HasSubstr("\x1b[")));
}

TEST(DiffProgram, JsonHoldsTheSame) {
  const auto run =
      RunDecoder({"diff", Session("a.pb"), Session("b.pb", 0x1000, 9), "--format", "json"});
  EXPECT_EQ(run.exit_code, 1);
  const json j = json::parse(run.out);
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["equal"], false);
  EXPECT_EQ(j["total"], 1);
  const json& d = j["differences"][0];
  EXPECT_EQ(d["kind"], "value");
  EXPECT_EQ(d["a"][0]["what"], "regTCP_CNTL");
  EXPECT_EQ(d["a"][0]["value"], "0x7");
  EXPECT_EQ(d["b"][0]["value"], "0x9");
  EXPECT_EQ(d["before_a"].size(), 20u);
  EXPECT_EQ(j["by_what"]["regTCP_CNTL"], 2);
  ASSERT_EQ(j["registers"].size(), 1u);
  EXPECT_EQ(j["registers"][0]["name"], "regTCP_CNTL");
  EXPECT_EQ(j["registers"][0]["b"], "0x9");
  EXPECT_EQ(j["a"]["queues"].size(), 2u);
}

TEST(DiffProgram, SideBySideAndColour) {
  const std::string a = Session("a.pb"), b = Session("b.pb", 0x1000, 9);
  const auto columns = RunDecoder({"diff", a, b, "--side-by-side", "--width", "120"});
  EXPECT_THAT(columns.out, HasSubstr("write regTCP_CNTL = 0x7"));
  EXPECT_THAT(columns.out, ::testing::ContainsRegex("CNTL = 0x7 +\\| +#[0-9]+ write regTCP"));
  const auto coloured = RunDecoder({"diff", a, b, "--color", "always"});
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[31m - "));
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[32m + "));
}

TEST(DiffProgram, OnATerminal) {
  using tg::testing::RunDecoderOnTerminal;
  const std::string a = Session("a.pb"), b = Session("b.pb", 0x1000, 9);
  const std::vector<std::string> words = {"diff", a, b, "--no-pager"};
  const auto coloured = RunDecoderOnTerminal(words);
  EXPECT_EQ(coloured.exit_code, 1);
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[31m - "));
  const auto plain = RunDecoderOnTerminal(words, {{"NO_COLOR", "1"}});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_THAT(plain.out, Not(HasSubstr("\x1b[31m")));
  EXPECT_THAT(plain.out, HasSubstr("write regTCP_CNTL = 0x7"));
  EXPECT_THAT(RunDecoderOnTerminal(words, {{"TERM", "dumb"}}).out, Not(HasSubstr("\x1b")));
  // As wide as the terminal.
  std::vector<std::string> columns = words;
  columns.push_back("--side-by-side");
  const auto longest = [](const std::string& text) {
    size_t most = 0, begin = 0;
    for (size_t end; (end = text.find("\r\n", begin)) != text.npos; begin = end + 2)
      most = std::max(most, end - begin);
    return most;
  };
  const auto wide = RunDecoderOnTerminal(columns, {{"NO_COLOR", "1"}}, 140);
  const auto narrow = RunDecoderOnTerminal(columns, {{"NO_COLOR", "1"}}, 60);
  EXPECT_GT(longest(wide.out), longest(narrow.out)) << wide.out << narrow.out;
}

// The share of the work that is done, on one line that is gone in the end.
TEST(DiffProgram, ProgressOnATerminal) {
  using tg::testing::RunDecoderOnTerminal;
  using tg::testing::WireTrace;
  WireTrace::Options options;
  options.fold = false;
  WireTrace trace(tg::testing::TempFile("long.pb"), options);
  trace.Connect();
  for (uint32_t i = 0; i < 70'000; i++) trace.Read(5, 0x1000 + i % 7 * 4, i % 5);
  trace.Disconnect("client");
  trace.Close();
  const std::vector<std::string> words = {"diff", trace.path(), trace.path(), "--no-pager"};
  const auto shown = RunDecoderOnTerminal(words);
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  const size_t first = shown.out.find("\rrpcdecode diff: ");
  const size_t last = shown.out.rfind("\rrpcdecode diff: ");
  const size_t cleared = shown.out.find("\r\x1b[K");
  const size_t result = shown.out.find("no difference");
  ASSERT_NE(first, shown.out.npos) << shown.out;
  EXPECT_LT(first, last) << "told once only";
  EXPECT_LT(last, cleared);
  EXPECT_LT(cleared, result);
  EXPECT_THAT(RunDecoderOnTerminal(words, {{"TERM", "dumb"}}).out, Not(HasSubstr("diff: ")));
  const auto piped = RunDecoder(words);
  EXPECT_EQ(piped.err, "");
  EXPECT_THAT(piped.out, HasSubstr("no difference"));
}

TEST(DiffProgram, OnlyAndIgnore) {
  const std::string a = Session("a.pb"), b = Session("b.pb", 0x2000, 9);
  const auto total = [&](std::vector<std::string> options) {
    std::vector<std::string> all = {"diff", a, b, "--format", "json"};
    all.insert(all.end(), options.begin(), options.end());
    return json::parse(RunDecoder(all).out)["total"].get<int>();
  };
  EXPECT_EQ(total({}), 1);  // neighbours: the register, then the doorbell
  EXPECT_EQ(total({"--ignore", "TCP_CNTL"}), 1);
  EXPECT_EQ(total({"--only", "regTCP_CNT?"}), 1);
  EXPECT_EQ(total({"--only", "SDMA0 COPY_*"}), 1);
  EXPECT_EQ(total({"--ignore", "SDMA0 COPY_*", "--ignore", "TCP_CNTL"}), 0);
  EXPECT_EQ(total({"--only", "bar0"}), 0);
  EXPECT_EQ(total({"--only", "CFG_READ"}), 0);
  EXPECT_THAT(RunDecoder({"diff", a, b, "--only", "SCRTACH"}).out,
              HasSubstr("note: 'SCRTACH' matches no event of either trace"));
}

TEST(DiffProgram, BadInput) {
  const std::string good = Session("a.pb");
  const std::string empty = File("empty.pb", ""), junk = File("junk.pb", "#!/bin/sh\necho no\n");
  for (const std::string& bad : {empty, junk, std::string("/nonexistent/trace.pb")}) {
    for (const auto& [a, b] : {std::pair{good, bad}, std::pair{bad, good}, std::pair{bad, bad}}) {
      const auto run = RunDecoder({"diff", a, b});
      EXPECT_EQ(run.exit_code, 3) << a << " " << b;
      EXPECT_THAT(run.err, HasSubstr(bad));
      EXPECT_EQ(run.out, "");
    }
  }
  EXPECT_EQ(RunDecoder({"diff", good}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"diff", good, good, "--format", "xml"}).exit_code, 2);
}

// Every length of a trace can be compared with the whole.
TEST(DiffProgram, CutAtAnyLength) {
  const std::string good = Session("a.pb");
  const std::string bytes = tg::testing::ReadFile(good);
  for (size_t size = 200; size < bytes.size(); size += bytes.size() / 40) {
    const std::string cut = File("cut.pb", bytes.substr(0, size));
    const auto run = RunDecoder({"diff", good, cut});
    EXPECT_TRUE(run.exit_code == 4 || (run.exit_code == 1 && size > bytes.size() - 200))
        << size << " of " << bytes.size() << ": " << run.out << run.err;
    if (run.exit_code == 4) {
      EXPECT_THAT(run.out, HasSubstr("B ends early after event "));
    }
  }
}

}  // namespace
}  // namespace tg::diff
