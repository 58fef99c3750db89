// A queue that does not go on: rows 8 to 12, and a lost fence. What a queue waits for is followed
// to whoever must write that value, so that the queue which only waits is not blamed.
#include <fmt/format.h>

#include "decoder/explain/blame.h"
#include "decoder/explain/card.h"
#include "decoder/explain/rules.h"

namespace tg::explain {
namespace {

constexpr const char* kNoPointer =
    "the engine's read pointer was not observed: it may never have heard the doorbell";

// Other queues that wait for what this one has to give.
void AddInnocent(const Facts& facts, const QueueView& culprit, Finding& f) {
  for (const QueueView& view : facts.queues) {
    if (&view == &culprit || !view.unfinished() || !view.waits_in_vain()) continue;
    if (view.producer == culprit.queue->index)
      f.evidence.push_back(
          {view.queue->last_doorbell_call, view.name() + " only waits for it: it is not at fault"});
  }
}

void FenceLost(const Facts& facts, const QueueView& view, Findings& out) {
  Finding f;
  f.rule = "fence_lost";
  f.kind = "hang";
  Certainty(facts, &view, f, view.queue->sdma() ? 98 : 90);
  AddQueueEvidence(facts, f);
  f.summary = fmt::format("{}: {}, fence not seen{}", view.name(),
                          view.idle() ? "ring drained" : "read past the packet",
                          view.open && !view.open->signals.empty()
                              ? fmt::format(" ({} at {})", view.open->signals.back().value,
                                            Hex(view.open->signals.back().va))
                              : "");
  f.advice = Advice::kRestartProcess;
  f.reason = "the write to host memory did not land: link or IOMMU; if it recurs, AM_RESET=1";
  out.push_back(std::move(f));
}

}  // namespace

void RuleSdmaStuck(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.culprit || !blame.culprit->queue->sdma()) return;
  const QueueView& view = *blame.culprit;
  // The fence was fetched, yet it did not arrive.
  if (view.idle() || blame.passed) return FenceLost(facts, view, out);
  if (NeverBegan(view)) return;
  Finding f;
  f.rule = "sdma_stuck";
  f.kind = "hang";
  const bool unsure = view.state.rptr_older || !view.state.rptr;
  Certainty(facts, &view, f, unsure ? 80 : 98);
  AddQueueEvidence(facts, f);
  if (!view.state.rptr) f.against.push_back({0, kNoPointer});
  const std::string left = fmt::format("{}{} bytes left", view.state.rptr_older ? "at most " : "",
                                       view.state.outstanding_bytes.value_or(0));
  const std::string at = view.state.stuck ? view.head_text() : "an unseen packet";
  // Memory that only the client sees (TCP) may hide that the engine never began.
  const std::string fence = FenceText(view) + (unsure ? " (or doorbell lost)" : "");
  f.summary = fmt::format("{} stuck at {}: {}{}", view.name(), at, left, fence);
  AdviseOnEngine(facts, view, f);
  if (view.state.rptr_older)
    f.against.push_back({view.state.rptr_call,
                         "the client read the read pointer before this submission only: the engine "
                         "may stand at a later packet, or never have heard the doorbell"});
  AddInnocent(facts, view, f);
  if (view.unmapped) {
    f.rule = "sdma_unmapped";
    f.summary =
        fmt::format("{} stuck at {}: {} is not mapped", view.name(), at, Hex(*view.unmapped));
    f.advice = Advice::kRestartProcess;
    f.reason =
        "the packet names memory that no page table maps: a fault of the program, not of the card";
  } else if (view.wait && view.head_item()->holds) {
    f.against.push_back({view.queue->last_doorbell_call,
                         "the wait holds by now: the engine is halted, or reads another place"});
  }
  const auto& interrupt = facts.error_interrupt;
  if (interrupt && interrupt->meaning.text.find("SDMA_") != std::string::npos) {
    f.confidence = std::max(f.confidence, 93);
    f.evidence.insert(f.evidence.begin(),
                      {interrupt->at.call, "interrupt " + interrupt->meaning.text});
  }
  if (facts.quiet.ns > 0 && facts.recovered)
    f.evidence.push_back(
        {facts.quiet.since, fmt::format("silence for {} before that: a spin without limit, or the "
                                        "program itself",
                                        Duration(facts.quiet.ns))});
  if (facts.recovered && facts.hung_again)
    f.evidence.push_back({facts.wait_last.call, "it hung again after recovery"});
  if (f.summary.size() > kColumns)
    f.summary = fmt::format("{} stuck at {}: {}{}", view.name(),
                            view.state.stuck ? view.state.stuck->op : "a packet", left, fence);
  out.push_back(std::move(f));
}

void RuleNotStarted(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.culprit || !NeverBegan(*blame.culprit)) return;
  const QueueView& view = *blame.culprit;
  Finding f;
  f.rule = "not_started";
  f.kind = "hang";
  Certainty(facts, &view, f, view.queue->sdma() ? 96 : 90);
  AddQueueEvidence(facts, f);
  f.summary = fmt::format("{} never began submission {}{}: doorbell lost, or engine halted",
                          view.name(), view.open->number, FenceText(view));
  if (view.wait)
    f.evidence.push_back(
        {view.queue->last_doorbell_call,
         fmt::format("the wait holds by now: {} has {}", view.head_text(), view.state.stuck->has)});
  uint64_t later = 0;
  for (const model::Submission& s : view.queue->submissions)
    if (s.number > view.open->number) later++;
  if (later > 0)
    f.evidence.push_back(
        {view.queue->last_doorbell_call, fmt::format("{} more doorbells did not wake it", later)});
  f.against.push_back(
      {0, "the engine's own registers were not read: which of the two is not seen"});
  if (view.queue->sdma()) {
    AdviseOnEngine(facts, view, f);
  } else {
    f.advice = Advice::kRestartProcess;
    f.reason = "recovery sets the compute queue up again; a new process starts clean";
  }
  out.push_back(std::move(f));
}

void RuleComputeHang(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.culprit || blame.culprit->queue->sdma()) return;
  const QueueView& view = *blame.culprit;
  if (NeverBegan(view)) return;
  if (view.idle() && view.open && !MayRunKernel(view)) return FenceLost(facts, view, out);
  Finding f;
  f.rule = "compute_hang";
  f.kind = "hang";
  Certainty(facts, &view, f, view.state.rptr ? 97 : 80);
  AddQueueEvidence(facts, f);
  if (!view.state.rptr) f.against.push_back({0, kNoPointer});
  f.summary = fmt::format(
      "compute queue stuck{}{}",
      view.state.stuck ? " at " + view.head_text() : " (kernel running or its signal open)",
      FenceText(view));
  AddInnocent(facts, view, f);
  if (f.summary.size() > kColumns) f.summary = "compute queue stuck" + FenceText(view);
  f.advice = Advice::kRestartProcess;
  f.reason = "recovery resets the compute engine; a new process starts clean";
  out.push_back(std::move(f));
}

void RuleLostKick(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  // The engine's own write pointer, read after the doorbell, is behind it: it was not told.
  for (const QueueView& view : facts.queues) {
    const auto& wptr = view.queue->wptr_register;
    if (!view.queue->known_format || !wptr || !view.queue->announced || !view.stuck()) continue;
    if (wptr.call <= view.queue->last_doorbell_call || wptr.raw == UINT32_MAX) continue;
    const uint64_t low = view.queue->ToBytes(wptr.raw) & 0xffffffff;
    if (low >= (*view.queue->announced & 0xffffffff)) continue;
    Finding f;
    f.rule = "doorbell_lost";
    f.kind = "hang";
    Certainty(facts, &view, f, 99);
    f.summary = fmt::format("{} write pointer register is {}, last doorbell says {}: doorbell lost",
                            view.name(), Hex(wptr.raw), Hex(view.queue->last_doorbell_value));
    f.evidence.push_back({view.queue->last_doorbell_call,
                          fmt::format("last doorbell {}", Hex(view.queue->last_doorbell_value))});
    f.evidence.push_back({wptr.call, fmt::format("write pointer register {}", Hex(wptr.raw))});
    f.advice = Advice::kRestartProcess;
    f.reason = "the card was never told of the last submission";
    out.push_back(std::move(f));
    return;
  }
  // A pointer in memory ahead of the last doorbell: the doorbell was lost or never sent.
  for (const QueueView& view : facts.queues) {
    const auto& wptr = view.queue->wptr_memory;
    if (!view.queue->known_format || !wptr || !view.queue->announced) continue;
    const uint64_t written = view.queue->ToBytes(wptr.raw);
    const bool never_moved = view.queue->doorbells == 0 && written > 0;
    if (written <= *view.queue->announced && !never_moved) continue;
    Finding f;
    f.rule = "doorbell_lost";
    f.kind = "hang";
    Certainty(facts, &view, f, 99);
    f.summary =
        fmt::format("{} write pointer in memory is {}, last doorbell says {}: doorbell lost",
                    view.name(), Hex(wptr.raw), Hex(view.queue->last_doorbell_value));
    f.evidence.push_back({wptr.call, fmt::format("write pointer in memory {}", Hex(wptr.raw))});
    f.evidence.push_back({view.queue->last_doorbell_call,
                          fmt::format("last doorbell {}", Hex(view.queue->last_doorbell_value))});
    f.advice = Advice::kRestartProcess;
    f.reason = "the card was never told of the last submission";
    out.push_back(std::move(f));
    return;
  }
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.nobody || !blame.wait) return;
  Finding f;
  f.rule = "host_died";
  f.kind = "hang";
  Certainty(facts, start, f, 95);
  AddQueueEvidence(facts, f);
  f.summary = fmt::format("{} waits for [{}] to reach {}, which nobody submitted",
                          blame.waiter->name(), Hex(blame.wait->address), blame.wait->reference);
  f.advice = Advice::kRestartProcess;
  f.reason =
      "the host stopped between doorbell and kick, or a doorbell was lost; the engines only wait";
  if (blame.circle) {
    f.rule = "deadlock";
    f.summary = fmt::format("{} and {} wait for each other: {} for [{}] to reach {}",
                            blame.waiter->name(), blame.next->name(), blame.waiter->name(),
                            Hex(blame.wait->address), blame.wait->reference);
    f.reason =
        "the program's waits form a circle, no engine is at fault; a new process starts clean";
  }
  out.push_back(std::move(f));
}

void RuleOverrun(const Facts& facts, Findings& out) {
  for (const model::QueueWarning& w : facts.all_queues.warnings()) {
    if (w.rule != "ring-overrun" || w.call < facts.first_call) continue;
    Finding f;
    f.rule = "ring_overrun";
    f.kind = "hang";
    const int hang = facts.HangCertainty(&f.evidence);
    f.confidence = hang > 50 ? 96 : facts.finished ? 40 : 80;
    f.summary = w.text;
    // Where the read pointer was learnt stands in the evidence.
    const size_t from = f.summary.find(" ("), to = f.summary.find(')');
    constexpr std::string_view kPointer = "the read pointer";
    const size_t pointer = f.summary.find(kPointer);
    if (f.summary.size() > kColumns && pointer < from && from < to && to != std::string::npos) {
      f.summary.erase(from, to + 1 - from);
      f.summary.replace(pointer, kPointer.size(), "rptr");
    }
    f.evidence.push_back({w.call, w.text});
    AddQueueEvidence(facts, f);
    f.advice = Advice::kRestartProcess;
    f.reason = "packets not yet read were overwritten: the host's fault, not the card's";
    out.push_back(std::move(f));
    return;
  }
}

void RuleHang(const Facts& facts, Findings& out) {
  Finding f;
  const int hang = facts.HangCertainty(&f.evidence);
  if (hang == 0) return;
  f.rule = "hang";
  f.kind = "hang";
  f.confidence = hang * 6 / 10;
  f.summary =
      facts.wait_ns > 0
          ? fmt::format("the client waited {} for the GPU; which engine is stuck: not observed",
                        Duration(facts.wait_ns))
          : "the GPU did not finish its work; which engine is stuck: not observed";
  AddQueueEvidence(facts, f);
  if (!facts.queues_observed) f.against.push_back({0, "queue pointers: not observed"});
  f.advice = Advice::kRestartProcess;
  f.reason = "end the process in order and start again; if it hangs at once, start with AM_RESET=1";
  out.push_back(std::move(f));
}

}  // namespace tg::explain
