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

// The oldest unfinished submission is where the chain of waits begins.
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

// The read pointer stands at the very beginning of the submission, though its first packet could be
// executed: from the memory's side a lost doorbell and a halted engine look the same.
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

// The submission has a kernel to run (or what it has was not observed).
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
  if (!view || !view->state.ring_observed) f.confidence -= 12;
}

std::string FenceText(const QueueView& view) {
  if (!view.open || view.open->signals.empty()) return {};
  return fmt::format(", fence {} not seen", view.open->signals.back().value);
}

}  // namespace

namespace {

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

bool IsSdmaRule(const std::string& rule) {
  return rule.starts_with("sdma_") || rule == "not_started";
}

// A stuck engine: what the driver can still do about it, and what it did in vain.
void AdviseOnEngine(const Facts& facts, Finding& f) {
  const Earlier* before = nullptr;
  for (const Earlier& e : facts.earlier)
    if (IsSdmaRule(e.verdict.rule) && e.verdict.confidence >= 50) before = &e;
  const bool reset = facts.boot && facts.boot->mode1_reset;
  const auto gc = facts.device.registers().map().Version(amd::kHwGc);
  if (before)
    f.evidence.push_back(
        {before->last_call,
         fmt::format("connection {} ended in: {}", before->connection, before->verdict.summary)});
  if (before && reset) {
    f.advice = Advice::kReboot;
    f.reason = "the engine was stuck before and is again, though a mode-1 reset lay between";
    f.evidence.push_back(
        {facts.boot->mode1_reset.call, "mode-1 reset at the start of this session"});
  } else if (before) {
    f.advice = Advice::kAmReset;
    f.reason =
        "it recurred in a new process: the driver then resets the whole card (mode 1); if it hangs "
        "even so, power-cycle";
  } else if (gc && gc->major == 9) {
    f.advice = Advice::kAmReset;
    f.reason =
        "this card's SDMA engine gets no soft reset when the driver ends, and recovery resets the "
        "compute engine only; a hive needs hive_reset.py";
  } else {
    f.advice = Advice::kRestartProcess;
    f.reason =
        "recovery resets the compute engine only, a stuck SDMA packet survives it; ending the "
        "process in order soft-resets SDMA. If it recurs at once, start once with AM_RESET=1 "
        "(mode-1 "
        "reset), and power-cycle if that does not help";
  }
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
  Certainty(facts, &view, f, view.state.rptr_older ? 80 : 98);
  AddQueueEvidence(facts, f);
  const std::string left = fmt::format("{}{} bytes left", view.state.rptr_older ? "at most " : "",
                                       view.state.outstanding_bytes.value_or(0));
  const std::string at = view.state.stuck ? view.head_text() : "an unseen packet";
  f.summary = fmt::format("{} stuck at {}: {}{}", view.name(), at, left, FenceText(view));
  AdviseOnEngine(facts, f);
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
  if (facts.recovered && facts.hung_again)
    f.evidence.push_back({facts.wait_last.call, "it hung again after recovery"});
  if (f.summary.size() > kColumns)
    f.summary =
        fmt::format("{} stuck at {}: {}{}", view.name(),
                    view.state.stuck ? view.state.stuck->op : "a packet", left, FenceText(view));
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
    AdviseOnEngine(facts, f);
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
  Certainty(facts, &view, f, 97);
  AddQueueEvidence(facts, f);
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
  out.push_back(std::move(f));
}

namespace {

bool Reads(const Facts& facts, uint64_t va) {
  const model::Place place = facts.all_queues.memory().Locate(va);
  const ReadRun& run = facts.reads;
  return place.kind == model::Place::Kind::kSysmem && place.region == run.header.bar &&
         place.offset >= run.header.arg0 && place.offset < run.header.arg0 + run.header.arg1;
}

}  // namespace

void RuleSlotLeak(const Facts& facts, Findings& out) {
  // A client that is still there and spins on memory, without limit: silent where it has the memory
  // mapped, reading one word over TCP.
  if (facts.finished || facts.waiting_at_end || facts.recovered || !facts.whole) return;
  const uint64_t spun = std::max(facts.silence_ns, facts.spin_ns);
  if (spun < 2'000'000'000) return;
  const QueueView* sdma = facts.FindQueue(true);
  if (!sdma || sdma->queue->submissions_total == 0) return;
  const bool reading = facts.spin_ns >= facts.silence_ns;
  const char* how = reading ? "reads one word" : "is silent";
  Finding f;
  f.kind = "hang";
  f.advice = Advice::kRestartProcess;
  f.evidence.push_back({reading ? facts.reads.first.call : facts.last_call,
                        fmt::format("the client {} for {}", how, Duration(spun))});
  f.evidence.push_back({sdma->queue->last_doorbell_call, sdma->state.headline});
  const uint64_t ring = sdma->queue->ring_bytes.value_or(0);
  const uint64_t left = sdma->state.outstanding_bytes.value_or(0);
  const bool at_rptr = reading && sdma->queue->rptr_va && Reads(facts, *sdma->queue->rptr_va);
  if (ring > 0 && (left + 4096 > ring || at_rptr)) {
    f.rule = "ring_full_spin";
    f.confidence = 88;
    f.summary =
        fmt::format("{} ring is full ({} of {} bytes): the client spins for room without limit",
                    sdma->name(), left, ring);
    f.reason = "the engine behind it is stuck; the spin hides it and has no time-out";
    out.push_back(std::move(f));
    return;
  }
  // The next slot in turn is one that was taken and never submitted.
  const model::Staging& staging = facts.copies.staging();
  const model::StagingSkip* leaked = nullptr;
  for (const model::StagingSkip& skip : staging.left_out)
    if (staging.last_slot && staging.slots > 0 &&
        skip.slot == (*staging.last_slot + 1) % staging.slots)
      leaked = &skip;
  if (!sdma->idle() || sdma->open || !leaked) return;
  f.rule = "slot_leak";
  f.confidence = 88;
  f.summary =
      fmt::format("rings idle, client {} for {}: staging slot {} leaked and is next in turn", how,
                  Duration(spun), leaked->slot);
  f.evidence.push_back(
      {leaked->call, fmt::format("slot {} was passed over, {} copies from others since",
                                 leaked->slot, leaked->uses_since)});
  f.reason = "an interrupted disk copy left its slot marked for ever; the card is fine";
  out.push_back(std::move(f));
}

void RuleOverrun(const Facts& facts, Findings& out) {
  for (const model::QueueWarning& w : facts.all_queues.warnings()) {
    if (w.rule != "ring-overrun" || w.call < facts.first_call) continue;
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
