#include "decoder/model/link.h"

#include <algorithm>

namespace tg::model {
namespace {

constexpr size_t kMaxTransitions = 64;
constexpr uint32_t kOnes = 0xFFFFFFFF;
constexpr uint16_t kPciMemory = 1u << 1;

}  // namespace

std::string_view LinkVerdictText(LinkVerdict verdict) {
  switch (verdict) {
    case LinkVerdict::kDeviceGone:
      return "the device is gone from the bus: configuration space reads all ones too";
    case LinkVerdict::kMemoryOff:
      return "memory decode is off in the PCI command register: all ones are expected";
    case LinkVerdict::kBarOrLink:
      return "PCI configuration still answers: BAR decode or link problem, not a lost device";
    case LinkVerdict::kConfigUnknown:
      return "PCI configuration was not read since: device gone, or BAR decode or link problem";
    case LinkVerdict::kUnknown:
      break;
  }
  return "no register read as all ones";
}

std::vector<PostedWrite> Link::recent_writes() const {
  std::vector<PostedWrite> writes;
  const uint64_t count = std::min<uint64_t>(writes_, kRecent);
  for (uint64_t i = writes_ - count; i < writes_; ++i) writes.push_back(recent_[i % kRecent]);
  return writes;
}

void Link::OnWrite(const PostedWrite& write) {
  recent_[writes_ % kRecent] = write;
  ++writes_;
}

void Link::OnRegister(const RegisterAccess& access, const RegisterState& state,
                      const Sample& before, bool had_read, uint64_t latency_before_ns) {
  if (access.write) return;
  const auto same = [&](const AllOnes& t) {
    return t.address == state.address && t.bar == state.bar;
  };
  if (access.value != kOnes) {
    if (transitions_.empty()) return;
    for (AllOnes& t : transitions_) {
      if (same(t) && !t.good_again) t.good_again = access.at;
    }
    return;
  }
  reads_ += access.times;
  for (auto t = transitions_.rbegin(); t != transitions_.rend(); ++t) {
    if (!same(*t) || t->good_again) continue;
    t->last_bad = access.last;
    t->count += access.times;
    return;
  }
  if (transitions_.size() >= kMaxTransitions) return;
  AllOnes t;
  t.address = state.address;
  t.bar = state.bar;
  t.name = state.name();
  t.first_bad = access.at;
  t.last_bad = access.last;
  t.count = access.times;
  t.bad_latency_ns = access.latency_ns;
  if (had_read) {
    t.last_good = before.at;
    t.last_good_value = before.value;
    t.good_latency_ns = latency_before_ns;
  }
  for (const PostedWrite& write : recent_writes()) {
    if (write.at.call > t.last_good.call) t.writes_between.push_back(write);
  }
  t.writes_between_total = t.writes_between.size();
  transitions_.push_back(std::move(t));
}

LinkVerdict Link::verdict() const {
  const AllOnes* first = nullptr;
  for (const AllOnes& t : transitions_) {
    if (!t.good_again) {
      first = &t;
      break;
    }
  }
  if (!first) return LinkVerdict::kUnknown;
  if (bars_.config_all_ones()) return LinkVerdict::kDeviceGone;
  if (const auto command = bars_.command(); command && (*command & kPciMemory) == 0) {
    return LinkVerdict::kMemoryOff;
  }
  // What configuration space said before the last good read of a register proves nothing.
  const Stamp config = bars_.last_config_ok();
  return config && config.call > first->last_good.call ? LinkVerdict::kBarOrLink
                                                       : LinkVerdict::kConfigUnknown;
}

}  // namespace tg::model
