// A set of byte ranges, kept apart from each other and in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace tg::replay {

class RangeSet {
 public:
  // Past this many ranges new ones are not taken: untrusted traces may scatter them at will.
  static constexpr size_t kMaxRanges = 1u << 18;

  void Add(uint64_t offset, uint64_t size);
  void Remove(uint64_t offset, uint64_t size);
  bool Overlaps(uint64_t offset, uint64_t size) const;
  size_t size() const { return ranges_.size(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // start -> end
};

}  // namespace tg::replay
