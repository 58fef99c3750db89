// The verdict: what happened, in one line, and what to do.
//
// This is what the session alone proves. Rules that look into the device (stuck queues, page
// faults, lost doorbells) belong to decoder/explain and produce the same struct; where they have
// one it goes in front of this one.
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

struct Verdict {
  std::string kind;        // healthy, hang, device_lost, refused, incomplete, unknown
  std::string summary;     // one line
  std::string advice;      // empty: nothing to do
  std::string confidence;  // high, medium, low
  std::vector<Evidence> evidence;
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

Verdict SessionVerdict(const model::Session& session, const std::vector<model::Warning>& warnings,
                       const FileFacts& file);

// 0 healthy or nothing found, 1 hang or lost device, 4 decoded but the trace is incomplete.
int ExitCode(const Verdict& verdict, const FileFacts& file, const model::Session& session);

}  // namespace tg::report
