// A register poll of the driver that runs out: rows 16 and 17, and the loops around boot.
#include <fmt/format.h>

#include "decoder/explain/blame.h"
#include "decoder/explain/card.h"
#include "decoder/explain/rules.h"

namespace tg::explain {
namespace {

constexpr uint64_t kLimit = 9'000'000'000;  // ns; the driver's is 10 s

struct Meaning {
  PollTarget target;
  const char* rule;
  const char* text;    // what does not happen
  const char* reason;  // of the advice: a reset of the card
};
constexpr Meaning kMeanings[] = {
    {PollTarget::kTlbAck, "tlb_stuck", "TLB invalidation not acknowledged",
     "a mode-1 reset restarts the hubs"},
    {PollTarget::kTlbSemaphore, "tlb_stuck", "TLB invalidation semaphore not free",
     "a mode-1 reset restarts the hubs"},
    {PollTarget::kDequeue, "mec_stuck", "the compute engine does not give up its queue",
     "the compute engine does not preempt; a mode-1 reset restarts it"},
    {PollTarget::kRlcSafeMode, "rlc_stuck", "the RLC does not enter safe mode",
     "a mode-1 reset restarts the RLC"},
    {PollTarget::kBootload, "bootload_stuck", "the graphics firmware does not finish loading",
     "a mode-1 reset starts the firmware load afresh"},
    {PollTarget::kPspAlive, "psp_dead", "the security processor does not come alive",
     "a mode-1 reset restarts it"},
};

void Add(const Facts& facts, const PollRun& run, bool open, Findings& out) {
  const Meaning* meaning = nullptr;
  for (const Meaning& m : kMeanings)
    if (m.target == run.target) meaning = &m;
  if (!meaning || run.value == UINT32_MAX) return;  // mailboxes and all ones: other rules
  Finding f;
  f.rule = meaning->rule;
  f.kind = "hang";
  f.confidence = run.duration_ns() >= kLimit ? 95 : open ? 70 : 40;
  if (run.reads < 3) f.confidence = 30;
  f.summary = fmt::format("{}: {} = {:#x} for {}", meaning->text, run.name, run.value,
                          Duration(run.duration_ns()));
  f.evidence.push_back({run.first.call, "first poll of " + run.name});
  f.evidence.push_back({run.last.call, fmt::format("poll {}: still {:#x}", run.reads, run.value)});
  AdviseCardReset(facts, f, meaning->reason);
  AfterReset(facts, run.first.call, f);
  if (run.target == PollTarget::kDequeue) AddQueueEvidence(facts, f);
  out.push_back(std::move(f));
}

}  // namespace

void RuleHub(const Facts& facts, Findings& out) {
  // A loop that ran out earlier and was survived is no longer the cause; the newest one may be.
  if (facts.fatal_poll) Add(facts, *facts.fatal_poll, facts.fatal_poll_open, out);
}

}  // namespace tg::explain
