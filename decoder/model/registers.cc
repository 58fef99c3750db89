#include "decoder/model/registers.h"

#include <algorithm>

namespace tg::model {
namespace {

constexpr uint64_t kOtherBarKey = 1ull << 63;
constexpr int kDieShift = 34;
constexpr uint64_t kDieMask = (1ull << kDieShift) - 1;

uint64_t Key(uint64_t address, uint8_t bar) {
  return bar == 5 ? address : address | kOtherBarKey;
}

// How the names of two halves differ: at the end, or before a ring's suffix.
struct HalfMark {
  std::string_view low;
  std::string_view high;
};
constexpr HalfMark kHalfMarks[] = {
    {"_LO32", "_HI32"},
    {"_LO", "_HI"},
    {"_LSB", "_MSB"},
    {"", "_HI"},
};

}  // namespace

void History::Add(const Sample& sample) {
  const Sample* newest = nullptr;
  if (!last_.empty()) {
    newest = &last_[last_.size() < kLast ? last_.size() - 1 : (next_ + kLast - 1) % kLast];
  } else if (!first_.empty()) {
    newest = &first_.back();
  }
  if (newest && newest->value == sample.value && newest->write == sample.write) return;
  ++total_;
  if (first_.size() < kFirst) {
    first_.push_back(sample);
  } else if (last_.size() < kLast) {
    last_.push_back(sample);
  } else {
    last_[next_] = sample;
    next_ = (next_ + 1) % kLast;
  }
}

std::vector<Sample> History::All(size_t* gap_after) const {
  std::vector<Sample> all = first_;
  const size_t start = last_.size() < kLast ? 0 : next_;
  for (size_t i = 0; i < last_.size(); ++i) all.push_back(last_[(start + i) % last_.size()]);
  if (gap_after) *gap_after = all.size() < total_ ? first_.size() : all.size();
  return all;
}

Registers::Registers() {
  static const auto assumed = std::make_shared<const Names>(amd::RegisterMap::Assumed());
  names_ = assumed;
}

const RegisterState* Registers::Find(uint64_t address) const {
  const uint32_t found = index_.Find(address & ~3ull);
  return found == FlatIndex::kNone ? nullptr : &states_[found];
}

const RegisterState* Registers::Find(std::string_view name, uint8_t instance) const {
  if (const auto address = names_->map.Find(name, instance)) return Find(*address);
  for (const RegisterState& state : states_) {
    if (!state.hit && state.other_name == name) return &state;
  }
  return nullptr;
}

std::optional<uint32_t> Registers::Value(std::string_view name, uint8_t instance) const {
  const RegisterState* state = Find(name, instance);
  if (!state || !state->known) return std::nullopt;
  return state->value;
}

std::optional<uint64_t> Registers::Value64(std::string_view base, std::string_view low,
                                           std::string_view high, uint8_t instance) const {
  std::string name(base);
  const auto low_value = Value(name + std::string(low), instance);
  const auto high_value = Value(name + std::string(high), instance);
  if (!low_value || !high_value) return std::nullopt;
  return *low_value | static_cast<uint64_t>(*high_value) << 32;
}

std::vector<const RegisterState*> Registers::Sorted() const {
  std::vector<const RegisterState*> sorted;
  sorted.reserve(states_.size());
  for (const RegisterState& state : states_) sorted.push_back(&state);
  std::sort(sorted.begin(), sorted.end(), [](const RegisterState* a, const RegisterState* b) {
    return a->bar != b->bar ? a->bar < b->bar : a->address < b->address;
  });
  return sorted;
}

std::vector<const RegisterState*> Registers::Unnamed() const {
  std::vector<const RegisterState*> unnamed;
  for (const RegisterState* state : Sorted()) {
    if (!state->named()) unnamed.push_back(state);
  }
  return unnamed;
}

std::vector<RegisterPair> Registers::Pairs() const {
  std::vector<RegisterPair> pairs;
  for (const RegisterState* low : Sorted()) {
    if (!low->hit || !low->known) continue;
    const std::string_view name = low->hit.name();
    for (const HalfMark& mark : kHalfMarks) {
      // The mark stands at the end, or before "_RING1" (IH_RB_BASE_HI_RING1).
      constexpr std::string_view kRing = "_RING1";
      std::string_view stem = name;
      std::string_view suffix;
      if (stem.ends_with(kRing)) {
        suffix = kRing;
        stem.remove_suffix(kRing.size());
      }
      if (!stem.ends_with(mark.low)) continue;
      stem.remove_suffix(mark.low.size());
      std::string other(stem);
      other += mark.high;
      other += suffix;
      const auto address = names_->map.Find(other, low->hit.instance);
      const RegisterState* high = address ? Find(*address) : nullptr;
      if (!high || !high->known || high == low) continue;
      std::string shown(stem);
      shown += suffix;
      pairs.push_back({std::move(shown), low, high});
      break;
    }
  }
  return pairs;
}

void Registers::SetMap(amd::RegisterMap map) {
  names_ = std::make_shared<const Names>(std::move(map));
  ++generation_;
  unnamed_accesses_ = 0;
  for (RegisterState& state : states_) {
    Resolve(state);
    if (!state.named()) unnamed_accesses_ += state.reads + state.writes;
  }
}

void Registers::Resolve(RegisterState& state) const {
  state.hit = {};
  state.other_name = {};
  state.role = Role::kNone;
  if (state.bar == 5) {
    const uint64_t plain = state.address & kDieMask;
    state.hit = names_->map.Lookup(plain);
    state.role = state.die == 0 ? names_->roles.Of(plain) : Role::kNone;
  }
  if (const auto other = other_names_.find(Key(state.address, state.bar));
      other != other_names_.end()) {
    if (!state.hit) state.other_name = other->second.name;
    if (state.role == Role::kNone) state.role = other->second.role;
  }
}

void Registers::SetOtherName(uint64_t address, std::string_view name, Role role) {
  if (other_names_.size() >= 256) return;
  const bool bar0 = role == Role::kNvBoot0 || role == Role::kNvBoot42;
  const uint64_t key = Key(address & ~3ull, bar0 ? 0 : 5);
  const auto [entry, is_new] = other_names_.try_emplace(key, OtherName{name, role});
  if (!is_new) return;
  if (const uint32_t found = index_.Find(key); found != FlatIndex::kNone) {
    RegisterState& state = states_[found];
    const bool was_named = state.named();
    Resolve(state);
    if (!was_named && state.named()) unnamed_accesses_ -= state.reads + state.writes;
  }
}

RegisterState* Registers::Touch(uint64_t address, uint8_t bar, uint8_t die, Via via) {
  address = (address & ~3ull & kDieMask) | static_cast<uint64_t>(die) << kDieShift;
  const uint64_t key = Key(address, bar);
  const uint32_t found = index_.Find(key);
  if (found != FlatIndex::kNone) {
    RegisterState& state = states_[found];
    state.via = via;
    return &state;
  }
  if (states_.size() >= kMaxRegisters) {
    full_ = true;
    return nullptr;
  }
  index_.Add(key, static_cast<uint32_t>(states_.size()));
  RegisterState& state = states_.emplace_back();
  state.address = address;
  state.bar = bar;
  state.die = die;
  state.via = via;
  Resolve(state);
  return &state;
}

void Registers::Record(RegisterState& state, const Sample& sample, uint64_t times, Stamp last) {
  accesses_ += times;
  if (!state.named()) unnamed_accesses_ += times;
  if (!state.first) state.first = sample.at;
  state.known = true;
  state.value = sample.value;
  Sample latest = sample;
  latest.at = last;
  if (sample.write) {
    state.writes += times;
    state.last_write = latest;
  } else {
    state.reads += times;
    state.last_read = latest;
  }
  state.history.Add(sample);
}

}  // namespace tg::model
