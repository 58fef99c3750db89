// A queue that does not go on: rows 8 to 12, and a lost fence. What a queue waits for is followed
// to whoever must write that value, so that the queue which only waits is not blamed.
#include <fmt/format.h>

#include "decoder/explain/rules.h"

namespace tg::explain {
namespace {

void AddQueueEvidence(const Facts& facts, Finding& f) {
  for (const QueueView& view : facts.queues) {
    if (!view.queue->known_format || view.queue->doorbells == 0) continue;
    f.evidence.push_back({view.queue->last_doorbell_call, view.state.headline});
    if (!view.state.stuck) {
      if (view.stuck() && !view.state.ring_observed)
        f.against.push_back({0, view.name() + ": ring content not observed"});
      continue;
    }
    if (view.head && view.wait && view.state.stuck->has.empty())
      f.against.push_back({0, view.name() + ": the word it waits for was not observed"});
    if (!view.state.stuck->producer.empty())
      f.evidence.push_back({view.queue->last_doorbell_call,
                            view.name() + " waits for: " + view.state.stuck->producer});
  }
}

// Why the queue cannot go on by itself; nullptr: it waits for somebody else (see WaitsFor).
struct Blame {
  const QueueView* culprit = nullptr;
  bool nobody = false;  // waits for a value that no submission writes
  bool passed = false;  // the culprit read past the fence, yet memory has the old value
  const QueueView* waiter = nullptr;
  const amd::WaitSpec* wait = nullptr;
};

// Follows unsatisfied waits from `from` to the queue that must act.
Blame Follow(const Facts& facts, const QueueView* from) {
  Blame blame;
  const QueueView* at = from;
  for (size_t hops = 0; at && hops <= facts.queues.size(); hops++) {
    if (!at->waits_in_vain()) {
      blame.culprit = at;
      return blame;
    }
    blame.waiter = at;
    blame.wait = &*at->wait;
    const QueueView* next = nullptr;
    for (const QueueView& view : facts.queues)
      if (at->producer == view.queue->index) next = &view;
    if (next && next->queue->sdma() && next->state.rptr && at->producer_end > 0 &&
        *next->state.rptr >= at->producer_end) {
      blame.culprit = next;
      blame.passed = true;
      return blame;
    }
    // Nobody submitted that value, or the queue would have to release itself.
    if (!next || (next == at && at->open && at->producer_number >= at->open->number)) {
      blame.nobody = true;
      return blame;
    }
    at = next;
  }
  blame.nobody = true;  // the queues wait for each other
  return blame;
}

const QueueView* Stuck(const Facts& facts) {
  const QueueView* sdma = facts.FindQueue(true);
  const QueueView* compute = facts.FindQueue(false);
  // The oldest unfinished submission is where the chain of waits begins.
  const auto open = [](const QueueView* v) { return v && v->unfinished(); };
  if (open(sdma) && open(compute)) {
    if (sdma->open && compute->open)
      return sdma->open->doorbell_call < compute->open->doorbell_call ? sdma : compute;
    return sdma->open ? sdma : compute;
  }
  return open(sdma) ? sdma : open(compute) ? compute : nullptr;
}

void Certainty(const Facts& facts, const QueueView* view, Finding& f, int full) {
  const int hang = facts.HangCertainty(&f.evidence);
  f.confidence = full * hang / 100;
  if (!view || !view->state.ring_observed) f.confidence -= 12;
}

std::string FenceText(const QueueView& view) {
  if (!view.open || view.open->signals.empty()) return {};
  return fmt::format(", fence {} not seen", view.open->signals.back().value);
}

}  // namespace

void RuleSdmaStuck(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.culprit || !blame.culprit->queue->sdma()) return;
  const QueueView& view = *blame.culprit;
  Finding f;
  f.rule = "sdma_stuck";
  f.kind = "hang";
  Certainty(facts, &view, f, 98);
  AddQueueEvidence(facts, f);
  if (view.idle() || blame.passed) {
    // The fence was fetched, yet it did not arrive.
    f.rule = "fence_lost";
    f.summary = fmt::format("{}: {}, fence not seen{}", view.name(),
                            view.idle() ? "ring drained" : "read past the packet",
                            view.open && !view.open->signals.empty()
                                ? fmt::format(" ({} at {})", view.open->signals.back().value,
                                              Hex(view.open->signals.back().va))
                                : "");
    f.advice = Advice::kRestartProcess;
    f.reason = "the write to host memory did not land: link or IOMMU; if it recurs, AM_RESET=1";
  } else {
    const std::string at = view.state.stuck ? view.head_text() : "an unseen packet";
    f.summary = fmt::format("{} stuck at {}: {} bytes left{}", view.name(), at,
                            view.state.outstanding_bytes.value_or(0), FenceText(view));
    f.advice = Advice::kAmReset;
    f.reason =
        "recovery resets the compute engine only, a stuck SDMA packet survives it: end the process "
        "in order, start again; if it recurs at once start with AM_RESET=1, then power-cycle";
    if (view.unmapped) {
      f.rule = "sdma_unmapped";
      f.summary =
          fmt::format("{} stuck at {}: {} is not mapped", view.name(), at, Hex(*view.unmapped));
      f.advice = Advice::kRestartProcess;
      f.reason =
          "the packet names memory that no page table maps: a fault of the program, not of the "
          "card";
    } else if (view.wait) {
      f.against.push_back({view.queue->last_doorbell_call,
                           "the wait holds by now: the engine is halted, or reads another place"});
    }
    if (facts.recovered && facts.waiting_at_end)
      f.evidence.push_back({facts.wait_last.call, "it hung again after recovery"});
  }
  if (f.summary.size() > 100)
    f.summary = fmt::format("{} stuck at {}: {} bytes left{}", view.name(),
                            view.state.stuck ? view.state.stuck->op : "a packet",
                            view.state.outstanding_bytes.value_or(0), FenceText(view));
  out.push_back(std::move(f));
}

void RuleComputeHang(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
  const QueueView* start = Stuck(facts);
  if (!start) return;
  const Blame blame = Follow(facts, start);
  if (!blame.culprit || blame.culprit->queue->sdma()) return;
  const QueueView& view = *blame.culprit;
  Finding f;
  f.rule = "compute_hang";
  f.kind = "hang";
  Certainty(facts, &view, f, 97);
  AddQueueEvidence(facts, f);
  f.summary = fmt::format(
      "compute queue stuck{}{}",
      view.state.stuck ? " at " + view.head_text() : " (kernel running or its signal open)",
      FenceText(view));
  if (blame.waiter) {
    f.evidence.push_back({blame.waiter->queue->last_doorbell_call,
                          blame.waiter->name() + " only waits for it: it is not at fault"});
  }
  if (f.summary.size() > 100) f.summary = "compute queue stuck" + FenceText(view);
  f.advice = Advice::kRestartProcess;
  f.reason = "recovery resets the compute engine; a new process starts clean";
  out.push_back(std::move(f));
}

void RuleLostKick(const Facts& facts, Findings& out) {
  if (facts.HangCertainty() == 0) return;
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
  out.push_back(std::move(f));
}

void RuleSlotLeak(const Facts& facts, Findings& out) {
  // Silence of a client that is still there: it spins on memory, without limit.
  if (facts.finished || facts.waiting_at_end || facts.recovered || !facts.whole) return;
  if (facts.silence_ns < 2'000'000'000) return;
  const QueueView* sdma = facts.FindQueue(true);
  if (!sdma || sdma->queue->submissions_total == 0) return;
  Finding f;
  f.kind = "hang";
  f.advice = Advice::kRestartProcess;
  f.evidence.push_back(
      {facts.last_call, fmt::format("last call, then silence for {}", Duration(facts.silence_ns))});
  const uint64_t ring = sdma->queue->ring_bytes.value_or(0);
  const uint64_t left = sdma->state.outstanding_bytes.value_or(0);
  if (ring > 0 && left + 4096 > ring) {
    f.rule = "ring_full_spin";
    f.confidence = 88;
    f.summary =
        fmt::format("{} ring is full ({} of {} bytes): the client spins for room without limit",
                    sdma->name(), left, ring);
    f.reason = "the engine behind it is stuck; the spin hides it and has no time-out";
  } else if (sdma->idle() && !sdma->open && sdma->queue->submissions_total >= 32) {
    f.rule = "slot_leak";
    f.confidence = 72;
    f.summary = fmt::format("rings idle, client silent for {} after copies: a staging slot leaked",
                            Duration(facts.silence_ns));
    f.reason = "an interrupted disk copy left its slot marked for ever; the card is fine";
    f.evidence.push_back({sdma->queue->last_doorbell_call, sdma->state.headline});
  } else {
    return;
  }
  out.push_back(std::move(f));
}

void RuleOverrun(const Facts& facts, Findings& out) {
  for (const model::QueueWarning& w : facts.all_queues.warnings()) {
    if (w.rule != "ring-overrun") continue;
    Finding f;
    f.rule = "ring_overrun";
    f.kind = "hang";
    f.confidence = facts.finished ? 40 : 80;
    f.summary = w.text.size() <= 100
                    ? w.text
                    : "a ring was overrun: the host wrote over packets not yet read";
    f.evidence.push_back({w.call, w.text});
    facts.HangCertainty(&f.evidence);
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
