// See README.md: incidents as data, replayed into a trace, decoded, compared line by line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "decoder/report/analysis.h"
#include "decoder/report/log.h"
#include "decoder/report/report.h"
#include "schemas/wire/bytes.h"
#include "tests/decoder/program.h"
#include "tests/decoder/wire_trace.h"

namespace tg {
namespace {

struct Step {
  std::string word;
  std::string rest;
};

struct Case {
  std::string name;
  std::vector<Step> steps;
};

Case Load(const std::string& path) {
  Case out;
  out.name = std::filesystem::path(path).stem().string();
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' ');
    out.steps.push_back({line.substr(0, space),
                         space == std::string::npos ? std::string() : line.substr(space + 1)});
  }
  return out;
}

std::vector<std::string> CaseFiles() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(FIELD_REPORT_CASES)) {
    if (entry.path().extension() == ".txt") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t Nanoseconds(const std::string& text) {
  size_t used = 0;
  const double number = std::stod(text, &used);
  const std::string unit = text.substr(used);
  const double scale = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : 1;
  return static_cast<uint64_t>(number * scale);
}

// "{i}" becomes the round as little-endian u64 in hex.
std::string Substitute(std::string hex, uint64_t round) {
  std::string number;
  for (int i = 0; i < 8; i++) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(round >> 8 * i & 0xff));
    number += digits;
  }
  for (size_t at = hex.find("{i}"); at != std::string::npos; at = hex.find("{i}"))
    hex.replace(at, 3, number);
  return hex;
}

class Player {
 public:
  explicit Player(const Case& c) : case_(c) {
    testing::WireTrace::Options options;
    for (const Step& step : c.steps) {
      if (step.word == "transport") options.transport = step.rest == "none" ? "" : step.rest;
      if (step.word == "revision") options.revision = wire::Revision::kR1;
    }
    trace_ = std::make_unique<testing::WireTrace>(testing::TempFile(c.name + ".pb"), options);
  }

  std::string Play() {
    Run(0, case_.steps.size(), 0);
    if (!ended_) {
      trace_->Disconnect("client");
      trace_->Close("client closed");
    }
    return trace_->path();
  }

 private:
  void Run(size_t begin, size_t end, uint64_t round) {
    for (size_t i = begin; i < end; i++) {
      const Step& step = case_.steps[i];
      if (step.word == "C") trace_->Client(Substitute(step.rest, round));
      if (step.word == "S") trace_->Server(Substitute(step.rest, round));
      if (step.word == "S+fd") trace_->Server(Substitute(step.rest, round), 1);
      if (step.word == "step") trace_->set_step(Nanoseconds(step.rest));
      if (step.word == "wait") trace_->Advance(Nanoseconds(step.rest));
      if (step.word == "close") {
        trace_->Disconnect(step.rest);
        trace_->Close(step.rest + " closed");
        ended_ = true;
      }
      if (step.word == "kill") {
        trace_->Kill();
        ended_ = true;
      }
      if (step.word == "loop") {
        size_t last = i;
        while (case_.steps[last].word != "end") last++;
        for (uint64_t n = 0; n < std::stoull(step.rest); n++) Run(i + 1, last, n);
        i = last;
      }
    }
  }

  const Case& case_;
  std::unique_ptr<testing::WireTrace> trace_;
  bool ended_ = false;
};

bool AnyLine(const std::string& text, const std::string& wanted) {
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    if (line.find(wanted) != std::string::npos) return true;
  }
  return false;
}

size_t CallLines(const std::string& log) {
  std::istringstream in(log);
  std::string line;
  size_t count = 0;
  while (std::getline(in, line)) count += line.find("-- ") == std::string::npos;
  return count;
}

class FieldReport : public ::testing::TestWithParam<std::string> {};

TEST_P(FieldReport, PrintsWhatTheReportExpects) {
  const Case c = Load(GetParam());
  const std::string path = Player(c).Play();

  auto reader = trace::TraceReader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto analysis = report::Analyse(**reader, path);
  const std::vector<model::Warning> warnings = analysis->session().Warnings();
  const auto report = testing::RunDecoder({path});
  const auto log = testing::RunDecoder({"log", path});
  EXPECT_EQ(report.err, "");
  EXPECT_EQ(report.exit_code, report::Report(*analysis).exit_code());

  for (const Step& step : c.steps) {
    SCOPED_TRACE(step.word + " " + step.rest);
    std::istringstream rest(step.rest);
    if (step.word == "exit") {
      EXPECT_EQ(report.exit_code, std::stoi(step.rest)) << report.out;
    }
    if (step.word == "report") {
      EXPECT_TRUE(AnyLine(report.out, step.rest)) << report.out;
    }
    if (step.word == "log" && step.rest.starts_with("lines ")) {
      EXPECT_EQ(CallLines(log.out), std::stoul(step.rest.substr(6))) << log.out;
    } else if (step.word == "log") {
      EXPECT_TRUE(AnyLine(log.out, step.rest)) << log.out;
    }
    if (step.word == "warning") {
      std::string rule, text;
      uint64_t seq = 0;
      rest >> rule >> seq;
      std::getline(rest >> std::ws, text);
      const bool found = std::any_of(warnings.begin(), warnings.end(), [&](const auto& w) {
        return w.rule == rule && w.call == seq && w.text.find(text) != std::string::npos;
      });
      EXPECT_TRUE(found) << report.out;
    }
    if (step.word == "no") {
      std::string what, text;
      rest >> what;
      std::getline(rest >> std::ws, text);
      if (what == "report") {
        EXPECT_FALSE(AnyLine(report.out, text)) << report.out;
      }
      if (what == "log") {
        EXPECT_FALSE(AnyLine(log.out, text)) << log.out;
      }
      if (what == "warning") {
        for (const auto& w : warnings)
          EXPECT_TRUE(w.rule != text && text != "any") << w.rule << ": " << w.text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FieldReport, ::testing::ValuesIn(CaseFiles()),
                         [](const ::testing::TestParamInfo<std::string>& param) {
                           std::string name = std::filesystem::path(param.param).stem().string();
                           std::replace_if(
                               name.begin(), name.end(),
                               [](unsigned char ch) { return !std::isalnum(ch); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace tg
