// What the RPC itself tells: refusals, a server that left, no answers, lost framing. Rows 4 and 19
// to 21, field reports B04 to B06 and B10.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/rules.h"
#include "decoder/model/words.h"

namespace tg::explain {
namespace {

using Event = model::Event;

// SessionEvent::Kind in trace.proto.
constexpr int kEventWaiting = 4;

// A write with the register's name where it has one.
std::string NamedWrite(const Facts& facts, const model::WriteSeen& write) {
  const model::Registers& registers = facts.device.registers();
  const bool mmio = write.header.command == static_cast<uint8_t>(wire::Command::kMmioWrite);
  const amd::RegisterHit hit =
      mmio && write.header.bar == 5 && facts.device.vendor() == model::Vendor::kAmd
          ? registers.map().Lookup(write.header.arg0)
          : amd::RegisterHit();
  return hit ? fmt::format("{} ({})", model::WriteText(write), hit.name())
             : model::WriteText(write);
}

// The newest of `writes`, in order.
template <typename Writes>
void AddLastWrites(const Facts& facts, const Writes& writes, const char* what, Finding& f) {
  constexpr size_t kShown = 8;
  size_t left_out = writes.size() > kShown ? writes.size() - kShown : 0;
  for (const model::WriteSeen& write : writes) {
    if (left_out > 0) {
      left_out--;
      continue;
    }
    f.evidence.push_back({write.seq, what + NamedWrite(facts, write)});
  }
}

void AddWarnings(const Facts& facts, std::string_view rule, Finding& f) {
  for (const model::Warning& w : facts.warnings)
    if (w.rule == rule && f.evidence.size() < 8) f.evidence.push_back({w.call, w.text});
}

}  // namespace

void RuleRefused(const Facts& facts, Findings& out) {
  const model::Refusal* best = nullptr;
  for (const model::Refusal& r : facts.refusals)
    if (!best || (best->text.empty() && !r.text.empty())) best = &r;
  if (!best) return;
  Finding f;
  f.rule = "refused";
  f.kind = "refused";
  // A refusal that the session survived is not what ended it.
  f.confidence = facts.refused_at_end ? 92 : 45;
  f.summary = model::RefusalText(*best);
  for (const model::Refusal& r : facts.refusals)
    if (f.evidence.size() < 5) f.evidence.push_back({r.seq, model::RefusalText(r)});
  f.advice = Advice::kRestartProcess;
  if (best->header.command == static_cast<uint8_t>(wire::Command::kMapSysmemFd))
    f.summary += "; expect the client to fail with IndexError";
  if (facts.session.sysmem_refused_at_cap > 0) {
    f.rule = "region_cap";
    f.reason = "the 128 regions of a connection are freed when it closes";
    AddWarnings(facts, "B02", f);
  } else if (!best->text.empty()) {
    f.reason = "do what the server says, then start again";
  } else {
    f.reason = "see the warnings and the server's own log; the server gave no reason";
  }
  if (facts.session.sysmem_refused > 0 && f.rule == "refused") {
    f.rule = "sysmem_refused";
    f.reason += "; the regions of a connection are freed when it closes";
  }
  AddWarnings(facts, "B05", f);
  out.push_back(std::move(f));
}

void RuleServerGone(const Facts& facts, Findings& out) {
  if (!facts.server_closed_first || facts.finished) return;
  Finding f;
  f.rule = "server_gone";
  f.kind = "device_lost";
  // A client that had waited in vain for so long was hung before.
  f.confidence = !facts.refusals.empty() ? 50 : facts.wait_ns >= 29'500'000'000 ? 78 : 86;
  f.summary = "the server closed the connection mid-session: driver or TinyGPU.app gone";
  f.advice = Advice::kRestartProcess;
  f.reason = facts.device.vendor() == model::Vendor::kAmd
                 ? "the next boot is a full one; if MAP_BAR then fails, replug the card"
                 : "if MAP_BAR then fails, replug the card";
  // What is known to end a server comes before what only came last.
  bool known = false;
  for (const model::Warning& w : facts.warnings) {
    constexpr uint64_t kJustBefore = 64;  // posted writes go on until the client sees the end
    if (w.call < facts.first_call) continue;
    if (w.rule == "T6") {
      f.summary = "the server died after a write over 64 MiB, which overruns its buffer";
      f.confidence = std::max(f.confidence, 88);
      known = true;
    } else if (w.rule == "range" && w.call + kJustBefore > facts.last_call) {
      if (!known) f.summary = "the server closed the connection after an access past the end";
      f.reason = "the card is not at fault: the client goes past the end of what is there";
      known = true;
    } else if (w.rule == "T4") {
      if (!known)
        f.summary = "the server closed the connection right after a posted write, without a word";
    } else if (w.rule == "T2") {
      f.summary = "the server closed the connection: " + w.text;
      known = true;
    } else {
      continue;
    }
    f.evidence.push_back({w.call, w.text});
  }
  if (f.summary.size() > 100)
    f.summary = "the server closed the connection after a call it does not take";
  AddLastWrites(facts, facts.session.recent_writes, "among the last writes: ", f);
  f.evidence.push_back({facts.last_call, "last call before the server closed"});
  out.push_back(std::move(f));
}

void RuleUnanswered(const Facts& facts, Findings& out) {
  if (facts.unanswered.empty() || facts.server_closed_first) return;
  const model::Unanswered& last = facts.unanswered.back();
  const uint64_t waited = facts.last_time_ns > last.time_ns ? facts.last_time_ns - last.time_ns : 0;
  Finding f;
  f.rule = "server_blocked";
  f.kind = "hang";
  // Without the file's end nobody knows whether the answer came later.
  f.confidence = !facts.whole ? 40 : waited >= 1'000'000'000 ? 84 : 58;
  f.summary = fmt::format("no answer to {} for {}: the server is blocked in a bus access",
                          model::CallText(last.header), Duration(waited));
  f.evidence.push_back({last.seq, "no answer to " + model::CallText(last.header)});
  AddLastWrites(facts, facts.session.suspects, "suspect: ", f);
  // Nothing was answered on this connection at all, not even what needs no card: the kernel accepts
  // a second client, the server does not.
  const auto command = static_cast<wire::Command>(facts.unanswered.front().header.command);
  const bool needs_no_card =
      command == wire::Command::kMapBar || command == wire::Command::kCfgRead ||
      command == wire::Command::kResizeBar || command == wire::Command::kMapSysmemFd ||
      command == wire::Command::kMapSysmem || command == wire::Command::kPing;
  if (facts.whole && needs_no_card && !facts.session.connections.empty() &&
      facts.session.connections.back().calls == facts.unanswered.size()) {
    f.rule = "second_client";
    f.summary = fmt::format(
        "no answer since connecting, for {}: the server serves one client, another has it",
        Duration(waited));
    f.confidence = waited >= 1'000'000'000 ? 80 : 55;
    f.advice = Advice::kRestartProcess;
    f.reason =
        "end the other client first; if there is none, the server itself hangs: start it again";
    out.push_back(std::move(f));
    return;
  }
  f.advice = Advice::kReplug;
  f.reason = "the access never came back from the bus; reboot if the card stays away";
  if (static_cast<wire::Command>(last.header.command) == wire::Command::kReset) {
    f.summary = fmt::format("no answer to RESET for {}: the card does not come back from it",
                            Duration(waited));
    f.advice = Advice::kPowerCycle;
    f.reason = "a reset that does not end leaves the link down; reboot if the card stays away";
  }
  out.push_back(std::move(f));
}

void RuleShortReply(const Facts& facts, Findings& out) {
  if (facts.session.short_replies == 0 || facts.finished) return;
  Finding f;
  f.rule = "short_reply";
  f.kind = "hang";
  f.confidence = facts.whole ? 82 : 40;  // the file's end may be what cut it
  f.summary = "a reply ended before its announced length: the client waits for ever";
  AddWarnings(facts, "T3", f);
  f.advice = Advice::kRestartProcess;
  f.reason = "the client asked past the end of what is there";
  out.push_back(std::move(f));
}

void RuleSecondClient(const Facts& facts, Findings& out) {
  const Event* waiting = nullptr;
  for (const Event& e : facts.session.events)
    if (e.kind == kEventWaiting) waiting = &e;
  if (!waiting || facts.session.connections.empty()) return;
  const model::Connection& last = facts.session.connections.back();
  if (last.calls > 1 || facts.session.connections_total > 1) return;
  Finding f;
  f.rule = "second_client";
  f.kind = "hang";
  f.confidence = 66;
  f.summary = "a client waits for another one: the server serves one at a time";
  f.evidence.push_back({waiting->seq, waiting->text});
  f.advice = Advice::kRestartProcess;
  f.reason = "end the other client first";
  out.push_back(std::move(f));
}

void RuleDesync(const Facts& facts, Findings& out) {
  if (facts.session.unreliable_from < std::max<uint64_t>(facts.first_call, 1)) return;
  Finding f;
  f.rule = "desync";
  f.kind = "desync";
  f.confidence = 82;
  f.summary =
      fmt::format("the byte stream lost its framing at record {}: client and server disagree",
                  facts.session.unreliable_from);
  for (const char* rule : {"B04", "B13", "T2"}) AddWarnings(facts, rule, f);
  f.advice = Advice::kRestartProcess;
  f.reason =
      "use a client and a server of the same protocol revision; later pairings are unreliable";
  out.push_back(std::move(f));
}

void RuleShifted(const Facts& facts, Findings& out) {
  constexpr uint64_t kEnough = 64;  // dwords: eight entries
  const ShiftWatch& shift = facts.shift;
  if (shift.reads() < kEnough) return;
  Finding f;
  f.rule = "answers_shifted";
  f.kind = "desync";
  f.confidence = 88;
  f.summary =
      "the client reads interrupts that are not there: it takes each answer for the next call's";
  f.evidence.push_back({shift.first().call, "first read of the interrupt ring though it is empty"});
  f.evidence.push_back({shift.last().call, fmt::format("{} such reads", shift.reads())});
  f.advice = Advice::kRestartProcess;
  f.reason =
      "the client was interrupted inside a call (Ctrl-C) and went on with the stream off by one; "
      "the "
      "card is not at fault";
  out.push_back(std::move(f));
}

void RuleBarAddress(const Facts& facts, Findings& out) {
  for (const model::Warning& w : facts.warnings) {
    if (w.rule != "B06" || w.call < facts.first_call) continue;
    Finding f;
    f.rule = "bar_address";
    f.kind = "hang";
    f.confidence = facts.finished ? 20 : 68;
    f.summary = "the client programs a MAP_BAR server address into the card: it is no bus address";
    f.evidence.push_back({w.call, w.text});
    f.advice = Advice::kRestartProcess;
    f.reason =
        "the client must not use that word for DMA: over this transport it is a pointer in the "
        "server";
    out.push_back(std::move(f));
    return;
  }
}

void RuleIncomplete(const Facts& facts, Findings& out) {
  if (facts.whole && facts.lost_calls == 0) return;
  Finding f;
  f.rule = "incomplete";
  f.kind = "incomplete";
  f.confidence = facts.whole ? 45 : 66;
  f.summary = facts.whole
                  ? fmt::format("the proxy lost {} records while recording", facts.lost_calls)
                  : "the trace is incomplete";
  const auto add = [&f](const std::string& text) {
    if (f.summary.size() + text.size() <= kColumns) f.summary += text;
  };
  if (!facts.whole) {
    f.evidence.push_back({0, facts.file_problem});
    add(": " + facts.file_problem);
  }
  f.advice = Advice::kContinue;
  f.reason = "what is shown holds up to there; record again to see the end";
  if (!facts.unanswered.empty()) {
    const model::Unanswered& last = facts.unanswered.back();
    const std::string text = fmt::format(
        "{} unanswered: {} (record {}, t={} s)", model::Count(facts.unanswered.size(), "request"),
        model::CallText(last.header), last.seq, model::Seconds(last.time_ns));
    add("; " + text);
    f.reason = "the unanswered request and the last writes before it are the suspects";
    f.evidence.push_back({last.seq, text});
    for (const auto& write : facts.session.suspects)
      f.evidence.push_back({write.seq, "suspect: " + NamedWrite(facts, write)});
  }
  out.push_back(std::move(f));
}

}  // namespace tg::explain
