// The two spins of the driver that have no time limit: for a staging slot that never comes back,
// and for room in a full SDMA ring (hang specification, 5).
#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/blame.h"
#include "decoder/explain/rules.h"
#include "decoder/model/words.h"

namespace tg::explain {
namespace {

constexpr uint64_t kWorthNoting = 2'000'000'000;  // ns

bool Reads(const Facts& facts, const ReadRun& run, uint64_t va) {
  const model::Place place = facts.all_queues.memory().Locate(va);
  return place.kind == model::Place::Kind::kSysmem && place.region == run.header.bar &&
         place.offset >= run.header.arg0 && place.offset < run.header.arg0 + run.header.arg1;
}

// A client that spins on memory, without limit: silent where it has the memory mapped, reading one
// word over TCP.
struct Spin {
  const QueueView* sdma = nullptr;  // none: no spin
  uint64_t ns = 0;
  uint64_t since = 0;
  const ReadRun* run = nullptr;  // what it reads meanwhile, none: nothing
};

Spin SpinOf(const Facts& facts) {
  Spin spin;
  if (!facts.waiting_at_end && !facts.recovered && !facts.finished) {
    const bool reads = facts.spin_ns >= facts.silence_ns;
    spin.ns = std::max(facts.silence_ns, facts.spin_ns);
    spin.since = reads ? facts.reads.first.call : facts.last_call;
    if (reads) spin.run = &facts.reads;
  }
  if (spin.ns < kWorthNoting && facts.quiet.ns > 0) {  // interrupted in it
    spin.ns = facts.quiet.ns;
    spin.since = facts.quiet.since;
    spin.run = facts.quiet.run.reads > 0 ? &facts.quiet.run : nullptr;
  }
  const QueueView* sdma = facts.FindQueue(true);
  if (spin.ns >= kWorthNoting && sdma && sdma->queue->submissions_total > 0) spin.sdma = sdma;
  return spin;
}

// Without the end of the file nobody knows whether the spin ended.
constexpr int kOpenEnded = 55;

}  // namespace

void RuleRingFull(const Facts& facts, Findings& out) {
  constexpr uint64_t kLong = 5'000'000'000;  // ns
  constexpr uint64_t kMostRoom = 4096;       // bytes: less than a long submission needs
  const Spin spin = SpinOf(facts);
  if (!spin.sdma || (facts.finished && facts.HangCertainty() == 0)) return;
  const QueueView& sdma = *spin.sdma;
  const uint64_t ring = sdma.queue->ring_bytes.value_or(0);
  const uint64_t left = sdma.state.outstanding_bytes.value_or(0);
  const bool at_rptr =
      spin.run && sdma.queue->rptr_va && Reads(facts, *spin.run, *sdma.queue->rptr_va);
  const uint64_t room = std::min(kMostRoom, ring / 8);
  if (ring == 0 || left > ring || (left + room < ring && !at_rptr)) return;
  Finding f;
  f.kind = "hang";
  f.rule = "ring_full_spin";
  f.confidence = facts.recovered ? 96 : spin.ns >= kLong || at_rptr ? 88 : 75;
  if (!facts.whole) f.confidence = std::min(f.confidence, kOpenEnded);
  f.evidence.push_back(
      {spin.since, at_rptr ? fmt::format("the client reads the read pointer for {}, as long as the "
                                         "ring has no room",
                                         Duration(spin.ns))
                           : fmt::format("the client is silent for {}: it spins on the read "
                                         "pointer in memory",
                                         Duration(spin.ns))});
  AddQueueEvidence(facts, f);
  const Blame blame = Follow(facts, &sdma);
  const QueueView* culprit = blame.culprit;
  std::string behind;
  if (blame.circle) {
    behind = ", in a circle of waits";
  } else if (blame.nobody) {
    behind = ", which waits for nobody";
  } else if (culprit && culprit != &sdma) {
    behind = " behind " + culprit->name();
  } else if (sdma.state.stuck) {
    behind = " at " + sdma.state.stuck->op;
  }
  f.summary = fmt::format("{} ring full ({} of {} bytes){}: client spins without limit",
                          sdma.name(), model::Thousands(left), model::Thousands(ring), behind);
  f.advice = Advice::kRestartProcess;
  if (!culprit || culprit->queue->sdma()) AdviseOnEngine(facts, culprit ? *culprit : sdma, f);
  f.reason =
      "the spin has no time-out and hides what is stuck: end the process (a killed one leaves "
      "REG6 = 1, so the next start does a mode-1 reset); " +
      (f.reason.empty() ? std::string("a new process starts clean") : f.reason);
  out.push_back(std::move(f));
}

void RuleSlotLeak(const Facts& facts, Findings& out) {
  const Spin spin = SpinOf(facts);
  if (!spin.sdma) return;
  const QueueView& sdma = *spin.sdma;
  const model::StagingSkip* leaked = facts.LeakedSlot();
  if (!leaked || !sdma.idle() || sdma.open) return;
  const char* how = spin.run ? "reads one word" : "is silent";
  Finding f;
  f.rule = "slot_leak";
  f.kind = "hang";
  f.confidence = !facts.whole ? kOpenEnded : facts.finished ? 75 : 88;
  f.evidence.push_back({spin.since, fmt::format("the client {} for {}", how, Duration(spin.ns))});
  f.evidence.push_back({sdma.queue->last_doorbell_call, sdma.state.headline});
  f.summary =
      fmt::format("rings idle, client {} for {}: staging slot {} leaked and is next in turn", how,
                  Duration(spin.ns), leaked->slot);
  f.evidence.push_back(
      {leaked->call, fmt::format("slot {} was passed over, {} copies from others since",
                                 leaked->slot, leaked->uses_since)});
  f.advice = Advice::kRestartProcess;
  f.reason = "an interrupted disk copy left its slot marked for ever; the card is fine";
  out.push_back(std::move(f));
}

}  // namespace tg::explain
