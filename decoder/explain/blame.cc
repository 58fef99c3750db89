#include "decoder/explain/blame.h"

#include <fmt/format.h>

#include "decoder/explain/card.h"
#include "schemas/amd/scratch.h"

namespace tg::explain {
namespace {

bool IsSdmaRule(const std::string& rule) {
  return rule.starts_with("sdma_") || rule == "not_started";
}

// The start was one with AM_RESET=1: its own state, and a full boot without a look at REG6.
bool AskedForReset(const model::BootSession& boot) {
  return boot.mode1_reset && boot.kind == model::BootKind::kFull && boot.reg7_read &&
         amd::ClassifyReg7(*boot.reg7_read) == amd::Reg7Kind::kCurrent && !boot.reg6_read;
}

}  // namespace

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
  blame.nobody = true;
  blame.circle = at != nullptr && at != blame.waiter;
  blame.next = at;
  return blame;
}

const QueueView* Stuck(const Facts& facts) {
  const QueueView* found = nullptr;
  const auto since = [](const QueueView& v) { return v.open ? v.open->doorbell_call : ~0ull; };
  for (const QueueView& view : facts.queues) {
    if (!view.queue->known_format || !view.unfinished()) continue;
    if (!found || since(view) < since(*found) ||
        (since(view) == since(*found) && view.queue->sdma() && !found->queue->sdma()))
      found = &view;
  }
  return found;
}

bool NeverBegan(const QueueView& view) {
  if (!view.open || !view.open->begin || view.state.rptr != *view.open->begin || !view.stuck() ||
      view.state.rptr_older || view.waits_in_vain())
    return false;
  if (view.queue->format.format == amd::RingFormat::kAql) return false;
  const model::QueueItem* head = view.head_item();
  if (!head || head->depth > 0) return false;
  // SDMA: a wait that holds, since anything else may well be what it works on.
  return !view.queue->sdma() || (view.wait && head->holds);
}

bool MayRunKernel(const QueueView& view) {
  bool seen = false;
  for (const model::QueueItem& item : view.state.items) {
    if (!view.open || item.submission != view.open->number) continue;
    seen = true;
    if (item.kind != amd::WalkItem::Kind::kPacket || item.packet.role == amd::PacketRole::kDispatch)
      return true;
  }
  return !seen;
}

void Certainty(const Facts& facts, const QueueView* view, Finding& f, int full) {
  const int hang = facts.HangCertainty(&f.evidence);
  f.confidence = full * hang / 100;
  if (view) f.queue = view->name();
  if (!view || !view->state.ring_observed) f.confidence -= 12;
}

std::string FenceText(const QueueView& view) {
  if (!view.open || view.open->signals.empty()) return {};
  return fmt::format(", fence {} not seen", view.open->signals.back().value);
}

void AdviseOnEngine(const Facts& facts, const QueueView& view, Finding& f) {
  constexpr uint64_t kAtOnce = 8;  // submissions
  const Earlier* before = nullptr;
  for (const Earlier& e : facts.earlier)
    if (IsSdmaRule(e.verdict.rule) && e.verdict.confidence >= 50) before = &e;
  const bool reset = facts.boot && facts.boot->mode1_reset;
  const bool in_vain =
      reset && AskedForReset(*facts.boot) && view.open && view.open->number <= kAtOnce;
  if (before)
    f.evidence.push_back(
        {before->last_call,
         fmt::format("connection {} ended in: {}", before->connection, before->verdict.summary)});
  if (reset && (before || in_vain)) {
    f.advice = Advice::kReboot;
    f.reason = before
                   ? "the engine was stuck before and is again, though a mode-1 reset lay between"
                   : "the mode-1 reset of this start (AM_RESET=1) did not help: power-cycle the "
                     "card";
    f.evidence.push_back(
        {facts.boot->mode1_reset.call, "mode-1 reset at the start of this session"});
  } else if (before) {
    AdviseCardReset(facts, f, "it recurred in a new process: a mode-1 reset resets the whole card",
                    "if it hangs even so, power-cycle");
  } else if (!ResetsSdmaAtExit(facts)) {
    AdviseCardReset(facts, f,
                    "this card's SDMA engine gets no soft reset when the driver ends, and recovery "
                    "resets the compute engine only",
                    "if it hangs even so, power-cycle");
  } else {
    f.advice = Advice::kRestartProcess;
    f.reason =
        "recovery resets the compute engine only, a stuck SDMA packet survives it; ending the "
        "process in order soft-resets SDMA. If it recurs at once, start once with AM_RESET=1 "
        "(mode-1 reset), and power-cycle if that does not help";
  }
}

}  // namespace tg::explain
