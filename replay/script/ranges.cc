#include "replay/script/ranges.h"

#include <algorithm>
#include <iterator>

namespace tg::replay {

void RangeSet::Add(uint64_t offset, uint64_t size) {
  if (size == 0 || size > ~offset) return;
  uint64_t end = offset + size;
  auto next = ranges_.upper_bound(offset);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= end) return;
    if (before->second >= offset) {
      offset = before->first;
      ranges_.erase(before);
    }
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  if (ranges_.size() < kMaxRanges) ranges_[offset] = end;
}

void RangeSet::Remove(uint64_t offset, uint64_t size) {
  if (size == 0) return;
  const uint64_t end = size > ~offset ? UINT64_MAX : offset + size;
  auto at = ranges_.upper_bound(offset);
  if (at != ranges_.begin() && std::prev(at)->second > offset) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [from, to] = *at;
    at = ranges_.erase(at);
    if (from < offset) ranges_[from] = offset;
    if (to > end) {
      ranges_[end] = to;
      return;
    }
  }
}

bool RangeSet::Overlaps(uint64_t offset, uint64_t size) const {
  if (size == 0) return false;
  const uint64_t end = size > ~offset ? UINT64_MAX : offset + size;
  const auto after = ranges_.lower_bound(end);
  return after != ranges_.begin() && std::prev(after)->second > offset;
}

}  // namespace tg::replay
