// A map from 64-bit keys to 32-bit positions: open addressing in one array, so that a look-up in
// the hot path of every record is usually one cache line. std::unordered_map took twice the time
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tg::model {

class FlatIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  uint32_t Find(uint64_t key) const {
    if (slots_.empty()) return kNone;
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.value == kNone) return kNone;
      if (slot.key == key) return slot.value;
    }
  }

  // `key` must not be in it; `value` is not kNone.
  void Add(uint64_t key, uint32_t value) {
    if ((size_ + 1) * 2 > slots_.size()) Grow();
    Put(key, value);
    ++size_;
  }

  void Erase(uint64_t key) {
    if (slots_.empty()) return;
    size_t at = Home(key);
    while (slots_[at].value != kNone && slots_[at].key != key) at = (at + 1) & mask_;
    if (slots_[at].value == kNone) return;
    --size_;
    // Those that stand behind the hole and would no longer be found move up.
    for (size_t next = (at + 1) & mask_; slots_[next].value != kNone; next = (next + 1) & mask_) {
      const size_t home = Home(slots_[next].key);
      if (((next - home) & mask_) >= ((next - at) & mask_)) {
        slots_[at] = slots_[next];
        at = next;
      }
    }
    slots_[at].value = kNone;
  }

  size_t size() const { return size_; }

  // Calls f(key, value) for each; nothing may be added or erased meanwhile.
  template <typename F>
  void ForEach(F&& f) const {
    for (const Slot& slot : slots_) {
      if (slot.value != kNone) f(slot.key, slot.value);
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNone;
  };
  size_t Home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) >> shift_; }

  void Put(uint64_t key, uint32_t value) {
    size_t at = Home(key);
    while (slots_[at].value != kNone) at = (at + 1) & mask_;
    slots_[at] = {key, value};
  }

  void Grow() {
    const size_t capacity = slots_.empty() ? 16 : slots_.size() * 2;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    mask_ = capacity - 1;
    shift_ = 64;
    for (size_t n = capacity; n > 1; n /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.value != kNone) Put(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 64;
  size_t size_ = 0;
};

}  // namespace tg::model
