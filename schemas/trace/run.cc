#include "schemas/trace/run.h"

#include <algorithm>

namespace tg::trace {

void RepeatRun::Load(const CallHistory& history, size_t period, uint64_t time) {
  loaded_ = period;
  for (size_t i = 0; i < period; i++) pattern_[i] = history.Pattern(period, i);
  state_ = {.issued = 1, .first_time = time, .last_time = time};
}

void RepeatRun::InitStates(uint8_t* end) {
  // ... state_a | key and length | state_b | end
  slots_[1] = end - kRepeatStateSize;
  slots_[0] = slots_[1] - 2 - kRepeatStateSize;
  PutRepeatState(slots_[0], state_);
  PutRepeatState(slots_[1], RepeatState{});
}

void RepeatRun::Begin() {
  period_ = loaded_;
  next_ = 1 % period_;
  waiting_ = !pattern_[0].posted;
  turn_ = 1;
}

bool RepeatRun::Continue(const RequestRecord& record, uint64_t time) {
  const CallImage& expected = pattern_[next_];
  if (waiting_ || !expected.SameRequest(record)) return false;
  state_.issued++;
  state_.last_time = std::max(time, state_.last_time);
  waiting_ = !expected.posted;
  next_ = (next_ + 1) % period_;
  Store();
  return true;
}

bool RepeatRun::Answer(const ReplyRecord& record, uint64_t latency_ticks) {
  const CallImage& call = pattern_[(next_ + period_ - 1) % period_];
  if (!waiting_ || !call.SameReply(record)) return false;
  const auto ticks = static_cast<uint32_t>(std::min<uint64_t>(latency_ticks, UINT32_MAX));
  state_.min_latency = state_.answered == 0 ? ticks : std::min(state_.min_latency, ticks);
  state_.max_latency = std::max(state_.max_latency, ticks);
  state_.answered++;
  waiting_ = false;
  Store();
  return true;
}

void RepeatRun::Store() {
  PutRepeatState(slots_[turn_], state_);
  turn_ ^= 1;
}

}  // namespace tg::trace
