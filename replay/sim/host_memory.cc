#include "replay/sim/host_memory.h"

#include <algorithm>

namespace tg::sim {
namespace {

constexpr uint64_t kPage = 0x1000;
constexpr uint64_t kSegment = 2 << 20;
constexpr uint64_t kGap = 0x10000;
constexpr uint64_t kLimit = 1ull << 40;
constexpr uint64_t kFirst = 0x1'0000'0000;

}  // namespace

std::vector<DmaSegment> HostMemory::Map(uint8_t* data, uint64_t size, uint32_t max_segments) {
  if (size == 0 || size > kLimit / 4 || max_segments == 0) return {};
  const uint64_t pages = (size + kPage - 1) / kPage;
  const uint64_t least = (pages + max_segments - 1) / max_segments * kPage;
  const uint64_t piece = std::max(kSegment, least);
  // Regions end with their client, so the space starts over whenever none is left.
  if (segments_.empty()) next_ = kFirst;
  if (next_ + size + kGap * (max_segments + 1) > kLimit) return {};
  std::vector<DmaSegment> segments;
  for (uint64_t at = 0; at < size; at += piece) {
    const uint64_t bytes = std::min(piece, size - at);
    segments.push_back({next_, bytes});
    segments_.push_back({next_, bytes, data + at});
    next_ += bytes + kGap;
  }
  return segments;
}

HostMemory::Run HostMemory::At(uint64_t address) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), address,
                                [](uint64_t a, const Entry& e) { return a < e.address; });
  if (after == segments_.begin()) return {};
  const Entry& entry = *std::prev(after);
  const uint64_t offset = address - entry.address;
  if (offset >= entry.size) return {};
  return {entry.data + offset, entry.size - offset};
}

}  // namespace tg::sim
