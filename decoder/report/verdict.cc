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

std::string UnansweredText(const Session& session) {
  const model::Unanswered& last = session.unanswered.back();
  return fmt::format("{} unanswered: {} (record {}, t={} s)",
                     Count(session.unanswered_total, "request"), model::CallText(last.header),
                     last.seq, model::Seconds(last.time_ns));
}

bool DeviceLost(const Session& session, const std::vector<model::Warning>& warnings, Verdict& v) {
  const model::LinkState state = session.link.state();
  const bool many = session.link.ones_count() >= 8 && session.link.several_registers();
  if (state == model::LinkState::kDeviceGone) {
    v.confidence = "high";
    v.summary = "the device is gone from the bus: PCI configuration reads all ones";
  } else if (state == model::LinkState::kAllOnes && !session.link.config_id() && many) {
    v.confidence = "medium";
    v.summary =
        fmt::format("the device does not answer: all registers read all ones since record {}",
                    session.link.ones_since());
  } else {
    return false;
  }
  v.kind = "device_lost";
  v.advice = "replug or power-cycle the device (REBOOT where it is built in), then start again";
  for (const model::Warning& w : warnings) {
    if (w.rule == "B03") v.evidence.push_back({w.call, w.text});
  }
  return true;
}

bool Refused(const Session& session, const std::vector<model::Warning>& warnings, Verdict& v) {
  if (session.refusals_harmful == 0) return false;
  const model::Refusal* best = nullptr;
  for (const model::Refusal& refusal : session.refusals) {
    if (refusal.harmless) continue;
    if (!best || (best->text.empty() && !refusal.text.empty())) best = &refusal;
  }
  if (!best) return false;
  v.kind = "refused";
  v.confidence = "high";
  v.summary = model::RefusalText(*best);
  const auto shared = static_cast<uint8_t>(wire::Command::kMapSysmemFd);
  if (best->header.command == shared) v.summary += "; expect the client to fail with IndexError";
  if (session.sysmem_refused_at_cap > 0) {
    v.advice = "restart the process: the 128 regions of a connection are freed when it closes";
  } else if (!best->text.empty()) {
    v.advice = "do what the server says, then start again";
  } else {
    v.advice = "see the warnings and the server's own log; the server gave no reason";
  }
  for (const model::Refusal& refusal : session.refusals) {
    if (v.evidence.size() < 5 && !refusal.harmless)
      v.evidence.push_back({refusal.seq, model::RefusalText(refusal)});
  }
  for (const model::Warning& w : warnings) {
    if (w.rule == "B05" && v.evidence.size() < 8) v.evidence.push_back({w.call, w.text});
  }
  return true;
}

void Incomplete(const Session& session, const FileFacts& file, Verdict& v) {
  v.kind = "incomplete";
  v.confidence = "high";
  v.summary = file.whole() ? fmt::format("the proxy lost {} while recording",
                                         Count(LostPackets(session), "record"))
                           : "the trace is incomplete: " + FileText(file);
  if (!session.unanswered.empty()) {
    v.summary += "; " + UnansweredText(session);
    for (const model::Unanswered& u : session.unanswered) {
      if (v.evidence.size() < 5)
        v.evidence.push_back({u.seq, "no answer to " + model::CallText(u.header)});
    }
    v.advice = "the unanswered request and the last writes before it are the suspects";
  } else {
    v.advice = "what is shown is whole up to there; record again to see the end";
  }
}

}  // namespace

Verdict SessionVerdict(const Session& session, const std::vector<model::Warning>& warnings,
                       const FileFacts& file) {
  Verdict v;
  if (DeviceLost(session, warnings, v)) return v;
  if (Refused(session, warnings, v)) return v;
  if (!file.whole() || LostPackets(session) > 0) {
    Incomplete(session, file, v);
    return v;
  }

  v.kind = "unknown";
  v.confidence = "low";
  const auto add_evidence = [&](std::string_view rule) {
    for (const model::Warning& w : warnings) {
      if (w.rule == rule && v.evidence.size() < 5) v.evidence.push_back({w.call, w.text});
    }
  };
  const bool server_first = session.connections.back().closed_first == "server";
  if (session.calls == 0) {
    v.summary = "no call was recorded";
  } else if (session.short_replies > 0) {
    v.summary = "a reply ended before its announced length: the client waits for ever";
    add_evidence("T3");
  } else if (session.unreliable_from > 0) {
    v.summary =
        fmt::format("the byte streams lost their framing at record {}", session.unreliable_from);
    add_evidence("B04");
    add_evidence("B13");
  } else if (session.link.state() == model::LinkState::kAllOnes ||
             session.link.state() == model::LinkState::kMemoryOff) {
    v.summary = "registers read all ones, though the device is not proven lost";
    add_evidence("B03");
  } else if (!session.unanswered.empty()) {
    v.summary = UnansweredText(session);
    v.evidence.push_back({session.unanswered.back().seq, v.summary});
  } else if (server_first) {
    v.summary = "the server closed the connection first, without an error reply";
    add_evidence("closed");
    add_evidence("T4");
  } else if (session.stalled) {
    v.summary = "the proxy saw a stall that had not cleared at the end";
  } else if (session.doorbells > 0) {
    v.summary = fmt::format(
        "{} submitted work; whether the device finished it does not show on the RPC level",
        Count(session.doorbells, "doorbell"));
  } else {
    v.kind = "healthy";
    v.confidence = "high";
    v.summary =
        fmt::format("{}, all answered; no work was submitted", Count(session.calls, "call"));
  }
  return v;
}

Verdict FullVerdict(const Analysis& analysis) {
  const Session& session = analysis.session().session();
  Verdict v = SessionVerdict(session, analysis.session().Warnings(), analysis.file);
  explain::Observation::File file;
  file.whole = analysis.file.whole();
  if (!file.whole) file.problem = FileText(analysis.file);
  file.lost_calls = LostPackets(session);
  const explain::Explanation explanation = analysis.seen.ExplainIt(file);
  const explain::Finding& top = explanation.verdict();

  const bool same_kind = top.kind == v.kind;
  const bool session_proves = v.kind == "refused" || v.kind == "device_lost";
  if (v.kind != "unknown" && (same_kind || (session_proves && top.confidence < 85)) &&
      top.kind != "healthy") {
    v.rule = same_kind ? top.rule : v.kind;
    v.certainty = same_kind ? top.confidence : 80;
  } else {
    v.kind = top.kind;
    v.rule = top.rule;
    v.certainty = top.confidence;
    v.summary = top.summary;
    v.advice = std::string(explain::AdviceWord(top.advice));
    if (!top.reason.empty()) v.advice += ": " + top.reason;
    if (top.advice == explain::Advice::kNothing) v.advice.clear();
    v.evidence.clear();
    for (const explain::Evidence& e : top.evidence) v.evidence.push_back({e.seq, e.text});
  }
  // A verdict on a session that the proxy had a hand in is one on the client's side only.
  const model::Intervention* hand = analysis.interventions.first_disturbance();
  if (hand) {
    v.summary +=
        fmt::format(" (not the device alone: {} at record {})", hand->text, hand->first_seq);
    v.certainty = std::min(v.certainty, v.kind == "healthy" ? 100 : 70);
    v.against.push_back(
        {hand->first_seq,
         fmt::format("the proxy kept or altered {} because it was told to: no proof of a fault of "
                     "the device or its server",
                     Count(analysis.interventions.total(model::Intervention::Kind::kGuard) +
                               analysis.interventions.total(model::Intervention::Kind::kInject),
                           "message"))});
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
