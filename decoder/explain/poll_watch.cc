#include "decoder/explain/poll_watch.h"

#include <string_view>

namespace tg::explain {
namespace {

using model::Role;

constexpr uint64_t kWorthNoting = 1'000'000'000;  // ns; the driver's quiet limits are 20 and 100 ms
constexpr size_t kMaxFailed = 32;

PollTarget TargetOf(Role role) {
  switch (role) {
    case Role::kInvalidateAckGc:
    case Role::kInvalidateAckMm:
      return PollTarget::kTlbAck;
    case Role::kInvalidateSemMm:
      return PollTarget::kTlbSemaphore;
    case Role::kSmuResponse:
    case Role::kSmuDebugResponse:
      return PollTarget::kSmu;
    case Role::kPspBootloader:
      return PollTarget::kPspBootloader;
    case Role::kPspAlive:
      return PollTarget::kPspAlive;
    case Role::kPspRingControl:
      return PollTarget::kPspRing;
    case Role::kCpStat:
    case Role::kBootloadStatus:
      return PollTarget::kBootload;
    case Role::kRlcSafeMode:
      return PollTarget::kRlcSafeMode;
    case Role::kHqdActive:
      return PollTarget::kDequeue;
    default:
      return PollTarget::kNone;
  }
}

bool Met(Role role, uint32_t value) {
  switch (role) {
    case Role::kInvalidateAckGc:
    case Role::kInvalidateAckMm:
    case Role::kInvalidateSemMm:
      return value & 1;
    case Role::kSmuResponse:
    case Role::kSmuDebugResponse:
      return value == 1;
    case Role::kPspBootloader:
    case Role::kPspRingControl:
      return value >> 31;
    case Role::kPspAlive:
      return value != 0;
    case Role::kCpStat:
      return value == 0;
    // bit 31 is bootload_complete; the loop as written ends when it is 0
    case Role::kBootloadStatus:
      return !(value >> 31);
    case Role::kRlcSafeMode:
    case Role::kHqdActive:
      return !(value & 1);
    default:
      return true;
  }
}

}  // namespace

void PollWatch::Close() {
  if (run_.target == PollTarget::kNone) return;
  if (!run_.met && run_.duration_ns() >= kWorthNoting && failed_.size() < kMaxFailed)
    failed_.push_back(run_);
  run_ = {};
}

void PollWatch::OnRegister(const model::RegisterAccess& access) {
  const Role role = access.reg->role;
  if (access.write) {
    Close();
    dequeue_asked_ = role == Role::kHqdDequeue || (dequeue_asked_ && role == Role::kNone);
    return;
  }
  PollTarget target = TargetOf(role);
  if (target == PollTarget::kDequeue && !dequeue_asked_) target = PollTarget::kNone;
  if (target != run_.target) Close();
  if (target == PollTarget::kNone) return;
  if (run_.reads == 0) {
    run_.target = target;
    run_.first = access.at;
  }
  run_.name = access.reg->name();
  run_.reads += access.times;
  run_.last = access.last ? access.last : access.at;
  run_.value = access.value;
  run_.met = Met(role, access.value);
}

std::optional<PollRun> PollWatch::open() const {
  if (run_.target == PollTarget::kNone || run_.met) return std::nullopt;
  return run_;
}

}  // namespace tg::explain
