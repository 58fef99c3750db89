// Nothing is wrong, or nothing but the end of the client: rows 1 and 13.
#include <fmt/format.h>

#include "decoder/explain/blame.h"
#include "decoder/explain/rules.h"
#include "decoder/model/words.h"

namespace tg::explain {
namespace {

bool AnythingWrong(const Facts& facts) {
  return facts.HangCertainty() > 0 || facts.fatal_poll || facts.session.unreliable_from > 0 ||
         (facts.server_closed_first && !facts.finished) || !facts.unanswered.empty() ||
         (!facts.refusals.empty() && !facts.finished) || facts.refused_at_end || facts.ras.at ||
         (facts.quiet.ns > 0 && facts.LeakedSlot() && !facts.work_outstanding) ||
         facts.session.link.state() == model::LinkState::kAllOnes ||
         facts.session.link.state() == model::LinkState::kDeviceGone;
}

uint64_t Submissions(const Facts& facts) {
  uint64_t total = 0;
  for (const QueueView& view : facts.queues) total += view.queue->submissions_total;
  return total;
}

// What the next start finds where the boot did not come to its end, which is where it leaves its
// note.
std::string AfterHalfABoot(const model::BootSession& boot) {
  const model::Phase phase =
      boot.phases.empty() ? model::Phase::kConnect : boot.phases.back().phase;
  if (phase <= model::Phase::kDecision)
    return "nothing was set up yet: the next start decides anew between full and partial boot";
  return boot.kind == model::BootKind::kPartial
             ? "it left no note of its own: the next start is a partial boot again"
             : "the next start is a full boot, with mode-1 reset if the security processor is up; "
               "no "
               "reboot needed";
}

}  // namespace

void RuleHealthy(const Facts& facts, Findings& out) {
  if (AnythingWrong(facts) || facts.last_call == 0) return;
  Finding f;
  f.rule = "healthy";
  f.kind = "healthy";
  f.advice = Advice::kNothing;
  const uint64_t work = Submissions(facts);
  const model::Ih& ih = facts.device.ih();
  if (facts.finished) {
    f.evidence.push_back({facts.boot->ended.call, "the driver finished: SCRATCH_REG6 = 0"});
    if (facts.work_outstanding) {
      f.confidence = 60;
      f.summary = facts.wait_ns > 0
                      ? fmt::format("interrupted after waiting {}, then finished in order",
                                    Duration(facts.wait_ns))
                      : "finished in order with work outstanding: interrupted";
      f.against.push_back({facts.last_call, "work was outstanding when the driver finished"});
    } else {
      f.confidence = facts.queues_observed ? 92 : 78;
      f.summary = fmt::format("{} submissions, all done; the driver finished in order", work);
      if (!facts.queues_observed && work > 0)
        f.against.push_back({0, "queue pointers and fences: not observed"});
    }
  } else if (facts.device.vendor() == model::Vendor::kNvidia ||
             facts.device.vendor() == model::Vendor::kOther) {
    // Its client waits on memory that it has mapped: nothing on the wire tells the end of that.
    f.confidence = 45;
    f.summary = fmt::format("{} calls, all answered; this card's queues are not decoded",
                            facts.session.calls);
    f.against.push_back({0, "whether its work was done: not observed"});
  } else if (work == 0) {
    f.confidence = facts.boot && facts.boot->start && !facts.boot->booted ? 40 : 70;
    f.summary = fmt::format("{} calls, all answered; no work was submitted", facts.session.calls);
  } else {
    return;  // the client left without finishing: RuleKilled
  }
  if (facts.joined) f.confidence = std::min(f.confidence, 65);
  if (facts.survived > 0) {
    f.confidence = std::min(f.confidence, 75);
    f.against.push_back({facts.boot->last_recovery.call,
                         model::Count(facts.survived, "wait") +
                             " ended in recovery of the compute queue; the client went on in good "
                             "order"});
  }
  if (ih.last_drain()) f.evidence.push_back({ih.last_drain().call, "last synchronize ended well"});
  if (ih.discarded() > 0) {
    // One of them may have been a fault.
    if (ih.last_discard().call >= facts.first_call) f.confidence -= 12;
    f.against.push_back(
        {ih.last_discard().call, model::Count(ih.discarded(), "interrupt") + " discarded unread"});
  }
  if (facts.boot && facts.boot->fault_read.value_or(0) != 0 &&
      *facts.boot->fault_read != UINT32_MAX) {
    std::string text = Hex(*facts.boot->fault_read);
    for (const model::Fault& fault : facts.device.faults().all())
      if (fault.first.call == facts.boot->fault_at.call && !fault.text.empty()) text = fault.text;
    f.against.push_back(
        {facts.boot->fault_at.call,
         "the session before left a page fault latched, its data may be wrong: " + text});
  }
  if (!facts.whole || facts.lost_calls > 0) {
    f.confidence = std::min(f.confidence, 30);
    f.against.push_back({0, facts.file_problem.empty() ? "records were lost" : facts.file_problem});
  }
  out.push_back(std::move(f));
}

// A full boot resets the card first, which the driver does not do to one of several coupled cards:
// it switches bus mastering off and ends with "Malformed state".
void RuleHiveRefused(const Facts& facts, Findings& out) {
  if (!facts.boot || !facts.device.boot().hive() || facts.boot->kind != model::BootKind::kFull ||
      facts.boot->phases.back().phase != model::Phase::kReset || facts.boot->mode1_reset ||
      !facts.client_closed_first || !facts.unanswered.empty() || facts.fatal_poll)
    return;
  Finding f;
  f.rule = "hive_refused";
  f.kind = "refused";
  f.confidence = 85;
  const bool left = facts.boot->reg6_read.value_or(0) != 0;
  f.summary = left ? "the driver does not start on a hive that was left running (REG6 not 0)"
                   : "the driver does not start on a hive that needs a full boot";
  f.evidence.push_back({facts.boot->reg7_at.call, facts.boot->reason});
  f.evidence.push_back({facts.last_call, "last call: the boot goes no further than its reset"});
  f.advice = Advice::kHiveReset;
  f.reason = "on the machine with the cards; AM_RESET=1 is refused in the same way";
  out.push_back(std::move(f));
}

void RuleKilled(const Facts& facts, Findings& out) {
  if (facts.finished || !facts.client_closed_first || !facts.boot || !facts.boot->start) return;
  if (facts.device.vendor() != model::Vendor::kAmd || facts.HangCertainty() > 0 ||
      facts.fatal_poll || !facts.unanswered.empty())
    return;
  const model::LinkState link = facts.session.link.state();
  if (link == model::LinkState::kAllOnes || link == model::LinkState::kDeviceGone) return;
  Finding f;
  f.rule = "killed";
  f.kind = "killed";
  const model::PhaseSpan* phase = facts.boot->phases.empty() ? nullptr : &facts.boot->phases.back();
  if (facts.joined && !facts.boot->booted) {
    f.confidence = 55;
    f.summary = "the client ended without finishing; its start is not in the trace";
    f.evidence.push_back({facts.boot->joined.call, "first that is seen of this session"});
  } else if (facts.boot->booted) {
    f.confidence = 70;
    f.summary = "the client ended without finishing (killed or crashed): no SCRATCH_REG6 write";
    f.evidence.push_back({facts.boot->booted.call, "SCRATCH_REG6 = 1: session running"});
  } else {
    f.confidence = 55;
    f.summary = fmt::format("the client left during boot, in phase {}",
                            phase ? model::PhaseName(phase->phase) : "connect");
  }
  f.evidence.push_back({facts.last_call, "last call before the client closed"});
  // No wait was seen, so it is no hang; where the work stood is told all the same.
  if (facts.work_outstanding) AddQueueEvidence(facts, f);
  const model::Boot& boot = facts.device.boot();
  if (boot.hive()) {
    f.advice = Advice::kHiveReset;
    f.reason =
        "the next start finds the note and refuses: the driver does not reset a card of a hive";
  } else {
    f.advice = Advice::kRestartProcess;
    f.reason = "the next start finds the note: " + boot.NextStart();
    if (facts.joined && !facts.boot->booted)
      f.reason =
          "if its boot had come to the end, the next start finds the note (REG6 = 1, not observed) "
          "and does a full boot with mode-1 reset";
    else if (!facts.boot->booted)
      f.reason = AfterHalfABoot(*facts.boot);
    else if (f.reason.find("full boot") != std::string::npos)
      f.reason =
          "the next start finds the note and does a full boot with mode-1 reset; no reboot needed";
  }
  out.push_back(std::move(f));
}

}  // namespace tg::explain
