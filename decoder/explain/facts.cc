#include "decoder/explain/facts.h"

#include <fmt/format.h>

namespace tg::explain {

const QueueView* Facts::FindQueue(bool sdma) const {
  const QueueView* found = nullptr;
  for (const QueueView& view : queues) {
    if (!view.queue->known_format || view.queue->sdma() != sdma) continue;
    // Of several the one that has something to tell.
    if (!found || (!found->stuck() && view.stuck())) found = &view;
  }
  return found;
}

int Facts::HangCertainty(std::vector<Evidence>* evidence) const {
  const auto say = [&](uint64_t seq, std::string text) {
    if (evidence) evidence->push_back({seq, std::move(text)});
  };
  if (recovered) {
    say(boot->last_recovery.call, "the client's hang handler ran (compute engine set up again)");
    return 95;
  }
  if (error_state) {
    say(boot->ended.call, "the driver ended in its error state (SCRATCH_REG6 = 1)");
    return 90;
  }
  if (finished) return 0;
  if (waiting_at_end) {
    say(wait_first.call, "the client began to poll the interrupt ring: it waits for over 200 ms");
    say(wait_last.call, fmt::format("still waiting after {}", Duration(wait_ns)));
    // The driver gives up after 30 s without progress; before that it may just be slow.
    const int sure = wait_ns >= 29'500'000'000 ? 88 : wait_ns >= 5'000'000'000 ? 70 : 55;
    return whole ? sure : sure >= 88 ? 85 : 35;
  }
  if (work_outstanding && silence_ns >= 2'000'000'000 && whole) {
    say(last_call, fmt::format("silence for {} with work outstanding", Duration(silence_ns)));
    return 62;
  }
  if (work_outstanding && spin_ns >= 2'000'000'000) {
    say(reads.first.call,
        fmt::format("the client reads one word of shared memory for {}, without a time limit",
                    Duration(spin_ns)));
    return whole ? 82 : 50;
  }
  return 0;
}

void Derive(Facts& facts) {
  facts.boot = facts.device.boot().current();
  if (facts.boot) {
    const model::Ih& ih = facts.device.ih();
    facts.hung_again =
        facts.boot->recoveries > 1 ||
        (facts.boot->recoveries == 1 && ih.last_round().call > ih.first_round().call &&
         ih.first_round().call > facts.boot->last_recovery.call);
    facts.finished = facts.boot->end != model::SessionEnd::kRunning;
    facts.error_state = facts.boot->end == model::SessionEnd::kErrorState;
    facts.recovered = facts.boot->recoveries > 0;
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

  // One round alone is the driver's finish, which looks for interrupts once more.
  if (facts.wait_last.call > facts.wait_first.call) {
    // The rounds begin 200 ms after the wait.
    facts.wait_ns = facts.wait_last.time_ns - facts.wait_first.time_ns + 200'000'000;
    facts.waiting_at_end = facts.wait_last.call > facts.device.ih().last_drain().call &&
                           !facts.finished && !facts.recovered;
  }
  if (facts.last_time_ns > facts.last_call_ns && facts.unanswered.empty())
    facts.silence_ns = facts.last_time_ns - facts.last_call_ns;

  if (facts.reads.header.command == static_cast<uint8_t>(wire::Command::kSysmemRead) &&
      facts.reads.last.call >= facts.last_call && facts.reads.first.call >= facts.first_call)
    facts.spin_ns = facts.reads.duration_ns();

  for (const QueueView& view : facts.queues) {
    if (view.unfinished()) facts.work_outstanding = true;
    if (view.state.outstanding_bytes) facts.queues_observed = true;
  }
}

}  // namespace tg::explain
