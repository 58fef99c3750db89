#include "decoder/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/rules.h"

namespace tg::explain {
namespace {

constexpr void (*kRules[])(const Facts&, Findings&) = {
    RuleHealthy,   RuleKilled,     RuleHiveRefused,    RuleAllOnes,      RuleServerGone,
    RulePageFault, RuleBadPacket,  RuleErrorInterrupt, RuleRas,          RuleRingFull,
    RuleMailbox,   RuleHub,        RuleSdmaStuck,      RuleComputeHang,  RuleLostKick,
    RuleSlotLeak,  RuleOverrun,    RuleRefused,        RuleSecondClient, RuleUnanswered,
    RuleDesync,    RuleBarAddress, RuleHang,           RuleIncomplete,   RuleShortReply,
    RulePollStuck, RuleNotStarted, RuleShifted,        RuleSilentEnd,
};

std::string Noticed(const Facts& facts) {
  if (facts.fatal_poll) {
    const std::string time = Duration(facts.fatal_poll->duration_ns());
    return facts.fatal_poll_open
               ? fmt::format("the driver's poll of {} ({} so far)", facts.fatal_poll->name, time)
               : fmt::format("the driver's poll of {}, which ran out after {}",
                             facts.fatal_poll->name, time);
  }
  // Whatever wait it was in: the error state ends it at once.
  if (facts.ras.at && facts.ras.at.call >= facts.first_call)
    return "the client, by the error bits in " + facts.ras.name;
  if (facts.error_interrupt && facts.error_interrupt->at.call >= facts.first_call) {
    const bool watchdog =
        facts.error_interrupt->meaning.text.find("QUEUE_HANG") != std::string::npos;
    return fmt::format("{}: interrupt {} set the error state",
                       watchdog ? "the SDMA engine's watchdog" : "the client",
                       facts.error_interrupt->meaning.text);
  }
  if (facts.recovered) {
    return facts.wait_ns > 0 ? fmt::format("the client, after waiting {}; its hang handler ran",
                                           Duration(facts.wait_ns))
                             : "the client; its hang handler ran";
  }
  if (facts.waiting_at_end)
    return fmt::format("nobody yet: the client had waited {} and not given up",
                       Duration(facts.wait_ns));
  if (facts.interrupted_stuck)
    return "whoever interrupted the client " +
           (facts.quiet.ns > 0 ? "in " + Duration(facts.quiet.ns) + " of spinning or sleep"
                               : "after it had waited " + Duration(facts.wait_ns));
  if (facts.work_outstanding && std::max(facts.silence_ns, facts.spin_ns) >= 2'000'000'000)
    return facts.spin_ns > facts.silence_ns
               ? "nobody: the client reads one word over and over, without limit"
               : "nobody: the client spins on memory, silently and without limit";
  return {};
}

std::string Recovery(const Facts& facts) {
  if (!facts.recovered) return {};
  return "recovery set the compute queue up again; SDMA ring and engine, page tables, IH, PSP and "
         "SMU were left as they were";
}

// Rules about queues whose finding is but another view of what `top` names.
enum class Of : uint8_t { kAny, kSdma, kCompute };
struct Covered {
  std::string_view top;
  Of queues;
};
constexpr Covered kCovered[] = {
    {"page_fault_sdma", Of::kSdma}, {"page_fault", Of::kCompute},
    {"shader_error", Of::kCompute}, {"bad_packet", Of::kCompute},
    {"mec_stuck", Of::kCompute},    {"ring_full_spin", Of::kAny},
    {"ring_overrun", Of::kSdma},    {"ras", Of::kAny},
    {"bit_error", Of::kAny},
};

bool Covers(const Finding& top, const Finding& f) {
  // "hang" only says that which engine is stuck was not seen.
  if (f.rule == "hang") return top.confidence >= 50 && top.kind != "healthy";
  if (f.rule == top.rule || f.rule == "error_interrupt") return true;
  if (top.rule == "short_reply") return f.rule == "server_blocked";
  for (const Covered& c : kCovered) {
    if (top.rule != c.top || f.queue.empty()) continue;
    const bool sdma = f.queue.starts_with("SDMA");
    return c.queues == Of::kAny || sdma == (c.queues == Of::kSdma);
  }
  return false;
}

// What the verdict says better is not said a second time.
void DropCovered(std::vector<Finding>& findings) {
  const Finding top = findings.front();
  findings.erase(std::remove_if(findings.begin() + 1, findings.end(),
                                [&top](const Finding& f) { return Covers(top, f); }),
                 findings.end());
}

// First bad event, what followed, where it stands.
std::vector<Evidence> Chain(const Facts& facts, const Finding& verdict) {
  std::vector<Evidence> chain;
  const QueueView* oldest = nullptr;
  for (const QueueView& view : facts.queues)
    if (view.open && (!oldest || view.open->doorbell_call < oldest->open->doorbell_call))
      oldest = &view;
  if (verdict.kind == "healthy") return chain;
  if (oldest && facts.HangCertainty() > 0)
    chain.push_back(
        {oldest->open->doorbell_call, fmt::format("{} submission {} announced, never finished",
                                                  oldest->name(), oldest->open->number)});
  for (const Evidence& e : verdict.evidence)
    if (e.seq != 0) chain.push_back(e);
  if (facts.finished)
    chain.push_back({facts.boot->ended.call, facts.error_state
                                                 ? "the driver finished in error state"
                                                 : "the driver finished"});
  else if (facts.last_call != 0)
    chain.push_back({facts.last_call, facts.server_closed_first ? "the server closed the connection"
                                      : facts.client_closed_first
                                          ? "the client closed the connection"
                                          : "the trace ends"});
  std::stable_sort(chain.begin(), chain.end(),
                   [](const Evidence& a, const Evidence& b) { return a.seq < b.seq; });
  return chain;
}

// Nothing of what the driver set up before is known, whatever the verdict.
void TellNotSeen(const Facts& facts, Finding& top) {
  if (!facts.joined) return;
  std::string unknown = "full or partial boot and why";
  if (facts.device.gpuvm().root_assumed()) unknown += ", page tables";
  const bool set_up =
      std::any_of(facts.queues.begin(), facts.queues.end(),
                  [](const QueueView& view) { return view.queue->ring_bytes.has_value(); });
  if (!set_up) unknown += ", queues (rings, pointers, fences)";
  top.against.push_back(
      {facts.boot->joined.call,
       std::string(facts.boot->Find(model::Phase::kDiscovery) ? "of the driver's start not all is"
                                                              : "the driver's start is not") +
           " in the trace; what it set up before is not observed: " + unknown});
}

// Where the newest connection only had a look at the card, the verdict is that of the run before.
// Where it is well, what hung before is not kept silent.
void TellEarlier(const Facts& facts, Explanation& result) {
  Finding& top = result.findings.front();
  const bool quiet = top.kind == "healthy" || top.kind == "killed" || top.kind == "unknown";
  if (!quiet) return;
  const Earlier* run = nullptr;    // the latest that was one
  const Earlier* wrong = nullptr;  // the latest that was not well
  for (const Earlier& e : facts.earlier) {
    if (!e.small) run = &e;
    if (e.verdict.kind != "healthy" && e.verdict.kind != "killed" && e.verdict.kind != "unknown" &&
        e.verdict.confidence >= 50)
      wrong = &e;
  }
  if (facts.small && run) {
    const uint64_t calls = facts.session.connections.back().calls;
    Finding verdict = run->verdict;
    verdict.evidence.push_back(
        {facts.last_call, fmt::format("connection {} came after it: {} calls",
                                      facts.session.connections.back().number, calls)});
    result.findings.insert(result.findings.begin(), std::move(verdict));
    return;
  }
  if (!wrong) return;
  const std::string text = fmt::format("connection {} ended in {}: {}", wrong->connection,
                                       wrong->verdict.kind, wrong->verdict.summary);
  top.against.push_back({wrong->last_call, text});
  const std::string brief =
      fmt::format("; connection {}: {}", wrong->connection, wrong->verdict.kind);
  if (top.summary.size() + brief.size() <= kColumns) top.summary += brief;
}

// A trace that ends early, or ends so far, in the middle of something wrong. Whether the client
// went on is not known, but where it stood is: what somebody sees who looks while it hangs, or
// after the machine died.
void TellWhereItEnds(const Facts& facts, Explanation& result) {
  Finding& top = result.findings.front();
  if (top.rule != "incomplete" || facts.whole) return;
  const bool waits = facts.waiting_at_end;
  const bool silent = !waits && facts.work_outstanding && facts.silence_ns >= 2'000'000'000;
  const Finding* so_far = nullptr;
  for (size_t i = 1; i < result.findings.size() && !so_far; i++) {
    const Finding& f = result.findings[i];
    // These two say no more than that the trace ends.
    if (f.rule == "server_blocked" || f.rule == "hang" || f.kind == "healthy" || f.kind == "killed")
      continue;
    if (waits || silent || f.confidence >= 40) so_far = &f;
  }
  if (!so_far) return;
  const std::string where =
      waits    ? fmt::format("the trace ends in a wait of {}: ", Duration(facts.wait_ns))
      : silent ? fmt::format("the trace ends in silence for {}: ", Duration(facts.silence_ns))
               : "the trace ends early; so far: ";
  top.summary = Fit(where + so_far->summary);
  top.reason =
      "whether the client went on is not in the trace. If it did not: " + AdviceText(*so_far);
  // Before the requests and writes at the end.
  const size_t file_first = top.evidence.empty() ? 0 : 1;
  top.evidence.insert(top.evidence.begin() + static_cast<ptrdiff_t>(file_first),
                      so_far->evidence.begin(), so_far->evidence.end());
}

}  // namespace

Explanation Explain(const Facts& facts) {
  Explanation result;
  for (const auto rule : kRules) rule(facts, result.findings);
  // What the trace does not show weakens every verdict but the one that says so.
  const bool has_gaps = !facts.whole || facts.lost_calls > 0;
  for (Finding& f : result.findings) {
    f.confidence = std::clamp(f.confidence, 1, 100);
    if (f.summary.size() > kColumns) {
      f.evidence.insert(f.evidence.begin(), {0, f.summary});
      f.summary = Fit(f.summary);
    }
    if (has_gaps && f.rule != "incomplete") {
      f.confidence = std::max(1, f.confidence - (facts.recovered ? 5 : 15));
      f.against.push_back({0, facts.file_problem.empty()
                                  ? fmt::format("{} records were lost", facts.lost_calls)
                                  : facts.file_problem});
    }
  }
  if (result.findings.empty()) {
    Finding f;
    f.rule = "unknown";
    f.kind = facts.last_call == 0 ? "incomplete" : "unknown";
    f.confidence = 20;
    f.summary = facts.last_call == 0
                    ? "no call was recorded"
                    : fmt::format("{} calls, and no rule applies", facts.session.calls);
    f.advice = Advice::kContinue;
    f.reason = "nothing in the trace asks for more";
    result.findings.push_back(std::move(f));
  }
  std::stable_sort(result.findings.begin(), result.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.confidence > b.confidence; });
  DropCovered(result.findings);
  TellWhereItEnds(facts, result);
  TellNotSeen(facts, result.findings.front());
  TellEarlier(facts, result);
  result.findings.front().chain = Chain(facts, result.findings.front());
  result.noticed = Noticed(facts);
  result.recovery = Recovery(facts);
  result.next_start = facts.device.boot().NextStart();
  return result;
}

}  // namespace tg::explain
