// SMU or PSP does not answer: rows 14 and 15.
#include <fmt/format.h>

#include "decoder/explain/card.h"
#include "decoder/explain/rules.h"
#include "schemas/amd/smu.h"

namespace tg::explain {
namespace {

// Driver limits, amd-boot: 10 s; a loop cut short by the trace's end counts less, and a short one
// is no more than how these dialogues go.
constexpr uint64_t kLimit = 9'000'000'000;
constexpr uint64_t kLong = 1'000'000'000;

int Certainty(uint64_t waited_ns) {
  return waited_ns >= kLimit ? 95 : waited_ns >= kLong ? 75 : 40;
}

// "message 0x5 GetSmuVersion"; a message without a known name is named by its number already.
std::string MessageText(const model::SmuExchange& e) {
  if (!e.debug && e.name.starts_with("message ")) return e.name;
  if (e.debug && e.name.starts_with("debug message "))
    return fmt::format("debug message {:#x}", e.message);
  return fmt::format("message {:#x} {}", e.message, e.name);
}

bool IsModeOneReset(const Facts& facts, const model::SmuExchange& e) {
  const model::Stamp reset = facts.boot ? facts.boot->mode1_reset : model::Stamp();
  return reset && reset.call == e.sent.call;
}

// The power controller lives and said no. The driver takes any answer but 1 for none.
void SmuRefused(const Facts& facts, const model::SmuExchange& last, Finding& f) {
  f.rule = "smu_refused";
  f.summary = fmt::format("SMU answered {} with {:#x} ({}), for {}", MessageText(last),
                          *last.response, amd::SmuResponseText(*last.response),
                          Duration(last.last_poll.time_ns - last.sent.time_ns));
  f.evidence.push_back({last.answered.call,
                        "the power controller is alive; the driver waits for 1 only, up to 10 s"});
  if (IsModeOneReset(facts, last)) {
    f.advice = Advice::kPowerCycle;
    f.reason = "the power controller refuses the mode-1 reset, the only one the driver has";
    return;
  }
  AdviseCardReset(facts, f,
                  "the power controller answers, so a mode-1 reset reaches it and starts its "
                  "firmware afresh");
  AfterReset(facts, last.sent.call, f);
}

void SmuFinding(const Facts& facts, Findings& out) {
  const model::SmuExchange* last = facts.device.smu().exchanges().newest();
  if (!last || last->response == 1u || last->polls == 0 || last->sent.call < facts.first_call)
    return;
  const uint64_t waited = last->last_poll.time_ns - last->sent.time_ns;
  // SetSoftMinByFreq may go unanswered for 20 ms, the liveness check for 100 ms: the driver goes
  // on.
  if (waited < kLong && facts.last_call > last->last_poll.call + 2) return;
  // All ones for as long: the register is not reached, whatever the power controller does.
  const auto& poll = facts.fatal_poll;
  if (!last->response && poll && poll->target == PollTarget::kSmu && poll->value == UINT32_MAX)
    return;
  Finding f;
  f.kind = "hang";
  f.confidence = Certainty(waited);
  f.evidence.push_back(
      {last->sent.call, fmt::format("{} argument {:#x}", MessageText(*last), last->argument)});
  f.evidence.push_back({last->last_poll.call, "last poll of the response register"});
  if (last->response) {
    SmuRefused(facts, *last, f);
    out.push_back(std::move(f));
    return;
  }
  f.rule = "smu_dead";
  f.summary = fmt::format("SMU {} unanswered for {} ({} polls)", MessageText(*last),
                          Duration(waited), last->polls);
  if (IsModeOneReset(facts, *last))
    f.evidence.push_back({last->sent.call, "it was the mode-1 reset itself"});
  f.advice = Advice::kReboot;
  f.reason =
      "the power controller carries out the driver's reset too, so no reset of the driver can "
      "reach it: power-cycle the card";
  if (waited < kLong) {
    f.advice = Advice::kRestartProcess;
    f.reason =
        "the poll was cut short, it may yet have been answered; if the next start stops there for "
        "10 s, power-cycle the card";
  }
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
