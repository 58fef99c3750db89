// The zoo, real part: traces of the stock driver, recorded by generate.py, against expected.json,
// which was written from the hang specification. The synthetic part is tests/explain/zoo_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "decoder/report/analysis.h"
#include "decoder/report/verdict.h"
#include "schemas/trace/reader.h"
#include "tests/zoo/zoo_file.h"

namespace tg::zoo {
namespace {

using nlohmann::json;
using report::Verdict;
using ::testing::HasSubstr;

const json& Expected() {
  static const json table = [] {
    std::ifstream file(ZOO_FOLDER "/expected.json");
    return json::parse(file);
  }();
  return table;
}

struct Decoded {
  Verdict verdict;
  int exit = 0;
};

Decoded Decode(Bytes trace) {
  auto reader = trace::TraceReader::FromBytes(std::move(trace));
  if (!reader) return {};
  const auto analysis = report::Analyse(**reader, "zoo.pb");
  Decoded out;
  out.verdict = report::FullVerdict(*analysis);
  out.exit = report::ExitCode(out.verdict, analysis->file, analysis->session().session());
  return out;
}

std::string Everything(const Verdict& v) {
  std::string text = v.summary + "\n" + v.advice + "\n" + v.noticed + "\n" + v.recovery + "\n" +
                     v.next_start + "\n";
  for (const auto* list : {&v.evidence, &v.against, &v.chain})
    for (const report::Evidence& e : *list) text += e.text + "\n";
  return text;
}

class ZooTraceTest : public ::testing::TestWithParam<std::string> {
 protected:
  Bytes Trace() {
    auto trace = LoadTrace(ZOO_FOLDER "/traces", GetParam());
    EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
    return trace ? std::move(*trace) : Bytes();
  }
};

TEST_P(ZooTraceTest, VerdictIsAsExpected) {
  const json& wanted = Expected().at(GetParam());
  const Decoded got = Decode(Trace());
  const Verdict& v = got.verdict;
  const std::string all = Everything(v);
  EXPECT_EQ(v.kind, wanted.at("kind").get<std::string>()) << all;
  if (wanted.contains("rule")) {
    EXPECT_EQ(v.rule, wanted.at("rule").get<std::string>()) << all;
  }
  EXPECT_EQ(v.advice.rfind(wanted.at("advice").get<std::string>(), 0), 0u) << v.advice;
  for (const std::string& part : wanted.at("summary").get<std::vector<std::string>>())
    EXPECT_THAT(v.summary, HasSubstr(part));
  for (const std::string& part : wanted.at("says").get<std::vector<std::string>>())
    EXPECT_THAT(all, HasSubstr(part));
  EXPECT_THAT(wanted.at("confidence").get<std::vector<std::string>>(),
              ::testing::Contains(v.confidence))
      << v.certainty;
  EXPECT_LE(v.summary.size(), 100u) << v.summary;
  EXPECT_EQ(got.exit, wanted.at("exit").get<int>());
}

// Cut off anywhere, a trace never gets a confident verdict of another kind, nor is it healthy.
TEST_P(ZooTraceTest, CutAnywhereIsNeverConfidentlyWrong) {
  const Bytes whole = Trace();
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(GetParam())));
  // TINYGPU_ZOO_CUTS: more of them.
  const char* const more = std::getenv("TINYGPU_ZOO_CUTS");
  const int cuts = more ? std::atoi(more) : 8;
  for (int i = 0; i < cuts; i++) {
    // Half of the cuts where things happen: in the last twentieth.
    const size_t from = i % 2 ? whole.size() - whole.size() / 20 : whole.size() / 50;
    const size_t cut = from + random() % (whole.size() - from);
    const Verdict v =
        Decode(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(cut))).verdict;
    if (v.certainty >= 80 && v.kind != "incomplete") {
      EXPECT_EQ(v.kind, Expected().at(GetParam()).at("kind").get<std::string>())
          << "cut at " << cut << " of " << whole.size() << ": " << v.rule << ": " << v.summary;
    }
    EXPECT_TRUE(v.kind != "healthy" || v.certainty < 50) << cut;
    EXPECT_LE(v.summary.size(), 100u) << v.summary;
  }
}

// While it hangs, or after the machine died in it, a trace has no end: what it stands at is told
// all the same, without saying that it stays there.
TEST(Zoo, WhoLooksDuringAWaitSeesWhatItWaitsFor) {
  for (const auto& [name, stuck] :
       {std::pair("sdma_stall", "SDMA0 stuck at COPY_LINEAR"),
        std::pair("compute_stall", "compute queue stuck at RELEASE_MEM"),
        std::pair("doorbell_lost", "SDMA0 never began submission 4")}) {
    const auto trace = LoadTrace(ZOO_FOLDER "/traces", name);
    ASSERT_TRUE(trace.has_value()) << name;
    int in_wait = 0;
    for (size_t missing = 500; missing < 20'000; missing += 500) {
      const Verdict v =
          Decode(Bytes(trace->begin(), trace->end() - static_cast<ptrdiff_t>(missing))).verdict;
      if (v.kind != "incomplete" || v.noticed.find("not given up") == v.noticed.npos) continue;
      in_wait++;
      EXPECT_THAT(v.summary, HasSubstr("the trace ends in a wait of ")) << name;
      EXPECT_THAT(v.summary, HasSubstr(stuck)) << name;
      EXPECT_THAT(v.advice, HasSubstr("If it did not: RESTART PROCESS")) << name;
      EXPECT_EQ(v.confidence, "medium") << name;
    }
    EXPECT_GT(in_wait, 0) << name;
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, wanted] : Expected().items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooTraceTest, ::testing::ValuesIn(Names()),
                         [](const auto& name) { return name.param; });

TEST(Zoo, EveryTraceIsExpectedAndEveryExpectationHasItsTrace) {
  std::vector<std::string> stored;
  for (const auto& entry : std::filesystem::directory_iterator(ZOO_FOLDER "/traces"))
    stored.push_back(entry.path().stem().string());
  EXPECT_THAT(stored, ::testing::UnorderedElementsAreArray(Names()));
}

TEST(ZooFile, WhatIsTakenApartComesTogetherAgain) {
  const auto trace = LoadTrace(ZOO_FOLDER "/traces", kBase);
  ASSERT_TRUE(trace.has_value());
  Bytes torn(trace->begin(), trace->end() - 7);
  torn[1000] ^= 1;  // a checksum that does not hold
  const auto again = PutTogether(TakeApart(torn));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, torn);
  EXPECT_FALSE(PutTogether(Bytes(100, 0xff)).has_value());
}

}  // namespace
}  // namespace tg::zoo
