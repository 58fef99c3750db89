#include "proxy/capture/stall_watch.h"

#include <array>

namespace tg::proxy {
namespace {

constexpr std::array<uint64_t, 3> kSnapshotsAt = {1'000'000'000, 5'000'000'000, 30'000'000'000};

}  // namespace

void StallWatch::End(const char* why) {
  if (stalled_ && !over_why_) {
    over_why_ = why;
    over_at_ = last_message_;
  }
}

void StallWatch::OnDoorbell(uint64_t now) {
  any_doorbell_ = true;
  last_doorbell_ = now;
  last_message_ = now;
  run_began_.reset();
  look_at_ = now + times_.silence_ns;
  End("new work was submitted");
}

void StallWatch::OnPollRound(uint64_t now) {
  last_message_ = now;
  if (!run_began_) {
    run_began_ = now;
    rounds_ = 0;
  }
  run_last_ = now;
  ++rounds_;
}

void StallWatch::OnDrain(uint64_t now) {
  last_message_ = now;
  run_began_.reset();
  look_at_.reset();
  End("the client's wait ended");
}

void StallWatch::OnQueueReset(uint64_t now) {
  last_message_ = now;
  End("the client gave up waiting and resets the compute queue");
  OnMessage(now, false);
}

void StallWatch::OnMessage(uint64_t now, bool polling) {
  last_message_ = now;
  if (polling) return;
  run_began_.reset();
  // Silence is counted from the last message on, as long as work may be outstanding.
  if (look_at_) look_at_ = now + times_.silence_ns;
  End("the client goes on");
}

void StallWatch::OnDisconnect(uint64_t now) {
  last_message_ = now;
  End("the client went away");
  any_doorbell_ = false;
  run_began_.reset();
  look_at_.reset();
}

StallWatch::Action StallWatch::Begin(Kind kind, uint64_t since) {
  stalled_ = true;
  kind_ = kind;
  since_ = since;
  snapshots_ = 0;
  over_why_ = nullptr;
  return {.what = Action::What::kBegin, .kind = kind, .since_ns = since};
}

void StallWatch::OnLook(uint64_t now, bool outstanding) {
  look_pending_ = false;
  if (!outstanding) {
    look_at_.reset();
    return;
  }
  look_at_ = now + times_.again_ns;
  if (!stalled_) begin_pending_ = true;
}

StallWatch::Action StallWatch::Tick(uint64_t now) {
  using What = Action::What;
  if (over_why_) {
    const Action action{.what = What::kOver,
                        .kind = kind_,
                        .since_ns = since_,
                        .lasted_ns = over_at_ > since_ ? over_at_ - since_ : 0,
                        .why = over_why_};
    over_why_ = nullptr;
    stalled_ = false;
    begin_pending_ = false;
    return action;
  }
  if (stalled_) {
    if (snapshots_ < static_cast<int>(kSnapshotsAt.size()) &&
        now >= since_ + kSnapshotsAt[snapshots_]) {
      ++snapshots_;
      return {
          .what = What::kSnapshot, .kind = kind_, .since_ns = since_, .lasted_ns = now - since_};
    }
    return {};
  }
  if (begin_pending_) {
    begin_pending_ = false;
    return Begin(Kind::kSilence, last_message_);
  }
  if (any_doorbell_ && run_began_ && rounds_ >= 2 && now >= *run_began_ + times_.poll_run_ns) {
    return Begin(Kind::kPollRun, *run_began_);
  }
  if (look_at_ && !run_began_ && !look_pending_ && now >= *look_at_) {
    look_pending_ = true;
    return {.what = What::kLook, .kind = Kind::kSilence, .since_ns = last_message_};
  }
  return {};
}

}  // namespace tg::proxy
