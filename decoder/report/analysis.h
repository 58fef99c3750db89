// One pass over a trace through all models. The report, the export and the exit code come from it.
#pragma once

#include <memory>
#include <string>

#include "decoder/explain/observation.h"
#include "decoder/model/interventions.h"
#include "decoder/model/session.h"
#include "decoder/report/polls.h"
#include "decoder/report/verdict.h"
#include "schemas/result.h"
#include "schemas/trace/reader.h"

namespace tg::report {

// The trace's first packet; empty strings and zeros where it was unreadable.
struct HeaderFacts {
  bool present = false;
  uint32_t version = 0;
  uint64_t start_wall_ns = 0;
  std::string producer;
  std::string host;
  std::string os;
  std::string body_policy;
  std::string listen;
  std::string upstream;
  std::string durability;
  uint32_t proxy_pid = 0;
};

struct Analysis {
  FileFacts file;
  HeaderFacts header;
  explain::Observation seen;
  PollTable polls;
  model::Interventions interventions;
  const model::SessionModel& session() const { return seen.session_model(); }
};

HeaderFacts ReadHeader(const trace::TraceReader& reader);
// Facts of the file as far as `reader` has got.
FileFacts ReadFileFacts(const trace::TraceReader& reader, const std::string& path);

// Fails when not one packet could be read: then there is nothing to report.
Result<void> AnythingRead(const FileFacts& file);

// Reads all of `reader`.
std::unique_ptr<Analysis> Analyse(trace::TraceReader& reader, const std::string& path);

}  // namespace tg::report
