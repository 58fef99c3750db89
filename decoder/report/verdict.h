// The verdict: what happened, in one line, and what to do.
//
// decoder/explain's first finding, in the words of the report and its JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decoder/model/session.h"
#include "schemas/trace/reader.h"

namespace tg::report {

struct Evidence {
  uint64_t seq = 0;
  std::string text;
};

// A finding that was less certain.
struct OtherVerdict {
  std::string rule;
  std::string kind;
  std::string confidence;
  std::string summary;
};

struct Verdict {
  std::string kind;        // as explain::Finding's
  std::string summary;     // one line
  std::string advice;      // empty: nothing to do
  std::string confidence;  // high, medium, low
  std::vector<Evidence> evidence;
  std::string rule;
  int certainty = 0;  // 0..100
  std::vector<Evidence> against;
  std::vector<Evidence> chain;
  std::string noticed, recovery, next_start;
  std::vector<OtherVerdict> others;
};

// What of the file could be read.
struct FileFacts {
  std::string path;
  uint64_t size = 0;
  uint64_t packets = 0;
  uint64_t good_end = 0;
  trace::EndState end = trace::EndState::kOpen;
  std::vector<trace::SkippedRange> skipped;
  bool whole() const { return end == trace::EndState::kClean && skipped.empty(); }
};

struct Analysis;
Verdict FullVerdict(const Analysis& analysis);

// 0 healthy or nothing found, 1 hang or lost device, 4 decoded but the trace is incomplete.
int ExitCode(const Verdict& verdict, const FileFacts& file, const model::Session& session);

}  // namespace tg::report
