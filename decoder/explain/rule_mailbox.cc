// SMU or PSP does not answer: rows 14 and 15.
#include <fmt/format.h>

#include "decoder/explain/card.h"
#include "decoder/explain/rules.h"

namespace tg::explain {
namespace {

// Driver limits, amd-boot: 10 s; a loop cut short by the trace's end counts less, and a short one
// is no more than how these dialogues go.
constexpr uint64_t kLimit = 9'000'000'000;
constexpr uint64_t kLong = 1'000'000'000;

int Certainty(uint64_t waited_ns) {
  return waited_ns >= kLimit ? 95 : waited_ns >= kLong ? 75 : 40;
}

void SmuFinding(const Facts& facts, Findings& out) {
  const model::SmuExchange* last = facts.device.smu().exchanges().newest();
  if (!last || last->response == 1u || last->polls == 0 || last->sent.call < facts.first_call)
    return;
  const uint64_t waited = last->last_poll.time_ns - last->sent.time_ns;
  // SetSoftMinByFreq may go unanswered for 20 ms, the liveness check for 100 ms: the driver goes
  // on.
  if (waited < kLong && facts.last_call > last->last_poll.call + 2) return;
  // An answer other than 1 shows to the driver as no answer.
  const bool refused = last->response.has_value();
  Finding f;
  f.rule = refused ? "smu_refused" : "smu_dead";
  f.kind = "hang";
  f.confidence = Certainty(waited);
  f.summary = refused ? fmt::format("SMU answered message {:#x} {} with {:#x}, not 1, for {}",
                                    last->message, last->name, *last->response, Duration(waited))
                      : fmt::format("SMU message {:#x} {} unanswered for {} ({} polls)",
                                    last->message, last->name, Duration(waited), last->polls);
  f.evidence.push_back({last->sent.call, fmt::format("message {:#x} {} argument {:#x}",
                                                     last->message, last->name, last->argument)});
  f.evidence.push_back({last->last_poll.call, "last poll of the response register"});
  if (facts.boot && facts.boot->mode1_reset && facts.boot->mode1_reset.call >= last->sent.call)
    f.evidence.push_back({facts.boot->mode1_reset.call, "it was the mode-1 reset itself"});
  f.advice = Advice::kReboot;
  f.reason =
      "the power controller carries out the driver's reset too, so no reset of the driver can "
      "reach it: power-cycle the card";
  out.push_back(std::move(f));
}

void PspFinding(const Facts& facts, Findings& out) {
  const model::PspExchange* last = facts.device.psp().exchanges().newest();
  if (!last || last->sent.call < facts.first_call) return;
  Finding f;
  f.kind = "hang";
  AdviseCardReset(facts, f, "a mode-1 reset restarts the security processor");
  if (last->status.value_or(0) != 0) {
    f.rule = "psp_refused";
    f.confidence = 85;
    f.summary = fmt::format("PSP refused {}: status {:#x}", last->text, *last->status);
    f.evidence.push_back({last->sent.call, last->text});
    if (facts.boot && facts.boot->booted.call > last->sent.call) return;  // it went on all the same
  } else {
    const uint64_t waited = last->polls ? last->last_poll.time_ns - last->sent.time_ns : 0;
    const bool polled_to_the_end = last->polls && facts.last_call <= last->last_poll.call + 2;
    if (last->done || (waited < kLong && !polled_to_the_end) || last->polls < 2) return;
    f.rule = "psp_dead";
    f.confidence = Certainty(waited) - 3;
    f.summary = fmt::format("PSP did not finish {} within {} ({} polls)", last->text,
                            Duration(waited), last->polls);
    f.evidence.push_back({last->sent.call, last->text});
    f.evidence.push_back({last->last_poll.call, "last poll"});
  }
  AfterReset(facts, last->sent.call, f);
  out.push_back(std::move(f));
}

}  // namespace

void AfterReset(const Facts& facts, uint64_t call, Finding& finding) {
  if (!facts.boot || !facts.boot->mode1_reset || facts.boot->mode1_reset.call >= call) return;
  finding.advice = Advice::kReboot;
  finding.reason =
      "the mode-1 reset at the start of this session did not help: power-cycle the card";
  finding.evidence.push_back({facts.boot->mode1_reset.call, "mode-1 reset"});
}

void RuleMailbox(const Facts& facts, Findings& out) {
  SmuFinding(facts, out);
  PspFinding(facts, out);
}

}  // namespace tg::explain
