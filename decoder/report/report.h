// The report of `rpcdecode trace.pb`: one document, printed as text or as JSON (see json.h).
//
// JSON contract, "schema": 1 (keys may be added, never renamed or removed; not observed = null):
//   verdict  {kind, summary, advice, confidence, evidence[{seq, text}]}
//   file     {path, size, packets, end, good_end, skipped[{offset, size, reason}]}
//   session  {transport, revision, evidence[], server, calls, duration_ns, by_command{NAME: n},
//             unanswered[{seq, t_ns, command, target, text}], suspects[], end, losses[],
//             connections[], events[], ...}
//   bars     [{index, size, address, address_kind, dev, seq}]
//   device, ips, scratch, boot, queues, copies: what the device model saw
//   calls    [{command, calls, answered, errors, bytes, latency_ns{min, median, max}}]
//   sysmem   {regions, asked, granted, refused, text}
//   refusals [{seq, count, command, target, status, reason, text}]
//   polls    [{first_seq, last_seq, calls, rounds, t0_ns, t1_ns, text}]
//   warnings [{rule, seq, text}]
//   proxy    what the proxy itself did, see proxy_section.h
#pragma once

#include <memory>
#include <string>

#include "decoder/report/analysis.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

class Report {
 public:
  explicit Report(const Analysis& analysis);
  ~Report();

  std::string ToJson() const;
  void ToText(Output& out) const;
  int exit_code() const { return exit_code_; }
  const Json& document() const { return *document_; }

 private:
  std::unique_ptr<Json> document_;
  int exit_code_ = 0;
};

// The parts of the session section, as json.h describes.
Json VerdictJson(const Verdict& verdict);
void VerdictText(const Json& verdict, Output& out);
Json FileJson(const FileFacts& file, const HeaderFacts& header);
Json SessionJson(const Analysis& analysis);
void SessionText(const Json& report, Output& out);
Json SessionBarsJson(const model::Session& session);
void SessionBarsText(const Json& report, Output& out);
Json CallsJson(const model::Session& session);
void CallsText(const Json& calls, Output& out);
Json RefusalsJson(const model::Session& session);
Json WarningsJson(const std::vector<model::Warning>& warnings);
void WarningsText(const Json& warnings, Output& out);
// "BAR 0", "unix", or "not observed" for null.
std::string OrNotObserved(const Json& value);

}  // namespace tg::report
