#include "decoder/explain/facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/blame.h"

namespace tg::explain {
namespace {

constexpr uint64_t kSilence = 2'000'000'000;    // ns: worth noting
constexpr uint64_t kOverdue = 10'000'000'000;   // ns: no copy of the driver takes as long
constexpr uint64_t kPollLimit = 9'000'000'000;  // ns; the driver's is 10 s
constexpr uint64_t kFewCalls = 2000;            // an end that came soon

// SDMA holds a copy or a fence that was to be done long ago, told from memory as the proxy saw it.
bool SdmaStands(const Facts& facts) {
  const QueueView* start = Stuck(facts);
  if (!start) return false;
  const Blame blame = Follow(facts, start);
  return blame.culprit && blame.culprit->queue->sdma() && blame.culprit->state.rptr &&
         !blame.culprit->state.rptr_older;
}

// What ended the client, if anything but its own will did.
void DeriveEnd(Facts& facts) {
  if (const auto open = facts.polls.open()) {
    facts.fatal_poll = open;
    facts.fatal_poll_open = true;
  } else if (!facts.polls.failed().empty()) {
    const PollRun& run = facts.polls.failed().back();
    const bool ran_out = run.duration_ns() >= kPollLimit || !facts.finished;
    if (run.first.call >= facts.first_call && ran_out && !facts.WentOn(run.last.call))
      facts.fatal_poll = run;
  }
  // Doorbells alone prove nothing here: they are posted, into the void if the server has left.
  for (const model::Refusal& r : facts.refusals)
    if (facts.last_call <= r.seq + kFewCalls && !(facts.finished && facts.WentOn(r.seq)))
      facts.refused_at_end = true;
  const uint64_t booted = facts.Since();
  for (const model::Interrupt& i : facts.interrupts) {
    if (i.at.call <= booted || i.meaning.effect == amd::IhEffect::kIgnored) continue;
    // All ones: read from a card that is gone, not an interrupt.
    if (i.entry.client == 0xff && i.entry.source == 0xff) continue;
    facts.error_interrupt = i;
    break;
  }
  const Quiet& silence = facts.silence;
  if (silence.ns > 0 && silence.since >= facts.first_call && !facts.WentOn(silence.until))
    facts.quiet = silence;
  const ReadRun& run = facts.ended_reads;
  if (run.reads > 0 && run.first.call >= std::max(facts.first_call, facts.quiet.until) &&
      !facts.WentOn(run.last.call))
    facts.quiet = {run.duration_ns(), run.first.call, run.last.call, run};
  if (!facts.finished || facts.recovered) return;
  if (facts.quiet.ns == 0 && facts.wait_ns < kOverdue) return;
  facts.interrupted_stuck = facts.work_outstanding && SdmaStands(facts);
}

}  // namespace

const QueueView* Facts::FindQueue(bool sdma) const {
  const QueueView* found = nullptr;
  for (const QueueView& view : queues) {
    if (!view.queue->known_format || view.queue->sdma() != sdma) continue;
    // Of several the one that has something to tell.
    if (!found || (!found->stuck() && view.stuck())) found = &view;
  }
  return found;
}

const model::StagingSkip* Facts::LeakedSlot() const {
  const model::Staging& staging = copies.staging();
  for (const model::StagingSkip& skip : staging.left_out)
    if (staging.last_slot && staging.slots > 0 &&
        skip.slot == (*staging.last_slot + 1) % staging.slots)
      return &skip;
  return nullptr;
}

uint64_t Facts::Since() const {
  const uint64_t booted = boot ? boot->booted.call : 0;
  return std::max({booted, first_call, survived > 0 ? boot->last_recovery.call : 0});
}

int Facts::HangCertainty(std::vector<Evidence>* evidence) const {
  const auto say = [&](uint64_t seq, std::string text) {
    if (evidence) evidence->push_back({seq, std::move(text)});
  };
  if (recovered) {
    say(boot->last_recovery.call, "the client's hang handler ran (compute engine set up again)");
    // Where the end is missing it may have gone on in good order.
    return whole || finished ? 95 : 80;
  }
  if (error_state) {
    say(boot->ended.call, "the driver ended in its error state (SCRATCH_REG6 = 1)");
    return 90;
  }
  if (finished) {
    if (!interrupted_stuck) return 0;
    if (quiet.ns > 0)
      say(quiet.since,
          fmt::format("{} for {} with work outstanding, until the client was interrupted",
                      quiet.run.reads > 0 ? "reads of one word" : "silence", Duration(quiet.ns)));
    else
      say(wait_last.call,
          fmt::format("the client waited {}, until it was interrupted", Duration(wait_ns)));
    return whole ? 72 : 45;
  }
  if (waiting_at_end) {
    say(wait_first.call, "the client began to poll the interrupt ring: it waits for over 200 ms");
    say(wait_last.call, fmt::format("still waiting after {}", Duration(wait_ns)));
    // The driver gives up after 30 s without progress; before that it may just be slow.
    const int sure = wait_ns >= 29'500'000'000 ? 88 : wait_ns >= 5'000'000'000 ? 70 : 55;
    return whole ? sure : sure >= 88 ? 85 : 35;
  }
  if (work_outstanding && silence_ns >= kSilence) {
    say(last_call, fmt::format("silence for {} with work outstanding", Duration(silence_ns)));
    return whole ? 62 : 35;
  }
  if (work_outstanding && spin_ns >= kSilence) {
    say(reads.first.call,
        fmt::format("the client reads one word of shared memory for {}, without a time limit",
                    Duration(spin_ns)));
    return whole ? 82 : 50;
  }
  return 0;
}

void Derive(Facts& facts) {
  facts.interrupts = facts.device.ih().interrupts();
  const uint64_t newest = facts.interrupts.empty() ? 0 : facts.interrupts.back().at.call;
  for (model::Interrupt& i : facts.device.ih().recent())
    if (i.at.call > newest) facts.interrupts.push_back(std::move(i));
  facts.boot = facts.device.boot().current();
  if (facts.boot) {
    const model::Ih& ih = facts.device.ih();
    facts.hung_again =
        facts.boot->recoveries > 1 ||
        (facts.boot->recoveries == 1 && ih.last_round().call > ih.first_round().call &&
         ih.first_round().call > facts.boot->last_recovery.call);
    facts.joined = facts.boot->joined && facts.device.vendor() == model::Vendor::kAmd;
    facts.finished = facts.boot->end != model::SessionEnd::kRunning;
    facts.error_state = facts.boot->end == model::SessionEnd::kErrorState;
    facts.recovered = facts.boot->recoveries > 0 && facts.survived == 0;
  }
  if (!facts.session.connections.empty()) {
    const std::string& closed = facts.session.connections.back().closed_first;
    facts.server_closed_first = closed == "server";
    facts.client_closed_first = closed == "client";
  }

  if (!facts.session.connections.empty()) {
    const model::Connection& now = facts.session.connections.back();
    if (facts.session.connections_total > 1) facts.first_call = now.first_seq;
    facts.small = now.calls < 32 && (!facts.boot || !facts.boot->booted);
    for (const model::Unanswered& u : facts.session.unanswered)
      if (u.seq >= facts.first_call) facts.unanswered.push_back(u);
    for (const model::Refusal& r : facts.session.refusals)
      if (r.seq >= facts.first_call && !r.harmless) facts.refusals.push_back(r);
  }

  // A wait of the connection before is over, whatever it came to.
  if (facts.wait_first.call < facts.first_call) facts.wait_first = facts.wait_last = {};
  // One round alone is the driver's finish, which looks for interrupts once more.
  if (facts.wait_last.call > facts.wait_first.call) {
    // The rounds begin 200 ms after the wait.
    facts.wait_ns = facts.wait_last.time_ns - facts.wait_first.time_ns + 200'000'000;
    facts.waiting_at_end = facts.wait_last.call > facts.device.ih().last_drain().call &&
                           !facts.finished && !facts.recovered;
  }
  if (facts.last_time_ns > facts.last_call_ns && facts.unanswered.empty() && !facts.finished)
    facts.silence_ns = facts.last_time_ns - facts.last_call_ns;

  if (facts.reads.header.command == static_cast<uint8_t>(wire::Command::kSysmemRead) &&
      facts.reads.last.call >= facts.last_call && facts.reads.first.call >= facts.first_call)
    facts.spin_ns = facts.reads.duration_ns();

  for (const QueueView& view : facts.queues) {
    const bool earlier = view.open && view.open->doorbell_call < facts.first_call;
    if (view.unfinished() && !earlier) facts.work_outstanding = true;
    if (view.state.outstanding_bytes) facts.queues_observed = true;
  }
  for (const model::Queue& queue : facts.all_queues.queues())
    if (queue.last_doorbell_call >= facts.first_call)
      facts.last_doorbell = std::max(facts.last_doorbell, queue.last_doorbell_call);
  DeriveEnd(facts);
}

}  // namespace tg::explain
