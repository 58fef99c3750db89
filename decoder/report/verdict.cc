#include "decoder/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/explain.h"
#include "decoder/model/words.h"
#include "decoder/report/analysis.h"

namespace tg::report {

using model::Count;
using model::Session;

namespace {

std::string FileText(const FileFacts& file) {
  std::string out(trace::EndStateText(file.end));
  if (file.end != trace::EndState::kClean)
    out += fmt::format(" at byte {} of {}", file.good_end, file.size);
  if (!file.skipped.empty()) {
    uint64_t bytes = 0;
    for (const trace::SkippedRange& range : file.skipped)
      bytes = model::SaturatingAdd(bytes, range.size);
    out += fmt::format(", {} skipped in {}", Count(bytes, "byte"),
                       Count(file.skipped.size(), "place"));
  }
  return out;
}

uint64_t LostPackets(const Session& session) {
  uint64_t lost = 0;
  for (const model::LossSeen& loss : session.losses)
    lost = model::SaturatingAdd(lost, model::SaturatingAdd(loss.packets, loss.calls));
  return lost;
}

}  // namespace

Verdict FullVerdict(const Analysis& analysis) {
  explain::Observation::File file;
  file.whole = analysis.file.whole();
  if (!file.whole) file.problem = FileText(analysis.file);
  file.lost_calls = LostPackets(analysis.session().session());
  const explain::Explanation explanation = analysis.seen.ExplainIt(file);
  const explain::Finding& top = explanation.verdict();

  Verdict v;
  v.kind = top.kind;
  v.rule = top.rule;
  v.certainty = top.confidence;
  v.summary = top.summary;
  v.advice = explain::AdviceText(top);
  for (const explain::Evidence& e : top.evidence) v.evidence.push_back({e.seq, e.text});
  // A verdict on a session that the proxy had a hand in is one on the client's side only.
  const model::Intervention* hand = analysis.interventions.first_disturbance();
  if (hand) {
    v.certainty = std::min(v.certainty, v.kind == "healthy" ? 100 : 70);
    const std::string who =
        fmt::format("not the device alone: {} at record {}", hand->text, hand->first_seq);
    v.against.push_back(
        {hand->first_seq,
         fmt::format("{}; the proxy kept or altered {} because it was told to: no proof of a fault "
                     "of the device or its server",
                     who,
                     Count(analysis.interventions.total(model::Intervention::Kind::kGuard) +
                               analysis.interventions.total(model::Intervention::Kind::kInject),
                           "message"))});
    // Who had the hand in it must be seen, what came of it stands in the evidence too.
    const std::string behind = " (" + explain::Fit(who, 75) + ")";
    if (v.summary.size() + behind.size() > explain::kColumns) {
      v.evidence.insert(v.evidence.begin(), {0, v.summary});
      v.summary = explain::Fit(v.summary, explain::kColumns - behind.size());
    }
    v.summary += behind;
  }
  v.confidence = explain::ConfidenceWord(v.certainty);
  for (const explain::Evidence& e : top.against) v.against.push_back({e.seq, e.text});
  for (const explain::Evidence& e : top.chain) v.chain.push_back({e.seq, e.text});
  v.noticed = explanation.noticed;
  v.recovery = explanation.recovery;
  v.next_start = explanation.next_start;
  for (size_t i = 1; i < explanation.findings.size() && i < 6; i++) {
    const explain::Finding& f = explanation.findings[i];
    v.others.push_back(
        {f.rule, f.kind, std::string(explain::ConfidenceWord(f.confidence)), f.summary});
  }
  return v;
}

int ExitCode(const Verdict& verdict, const FileFacts& file, const Session& session) {
  for (const char* found : {"hang", "device_lost", "unreachable", "desync"})
    if (verdict.kind == found) return 1;
  return file.whole() && LostPackets(session) == 0 ? 0 : 4;
}

}  // namespace tg::report
