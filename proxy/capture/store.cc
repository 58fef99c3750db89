#include "proxy/capture/store.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tg::proxy {
namespace {

constexpr size_t kBlock = 4096;      // asked of the model at once
constexpr uint64_t kCell = 8;        // smallest unit of change
constexpr size_t kJoin = 32;         // a packet's own cost: closer runs are one
constexpr size_t kMaxRun = 1 << 20;  // bytes of data in one packet
constexpr size_t kZeroRun = 64;      // from here on zeros are said, not stored

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

}  // namespace

uint64_t ChangeStore::Store(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes,
                            StoreWhy why, bool torn) {
  // [begin, end) of the run that is open.
  size_t begin = 0, end = 0;
  uint64_t emitted = 0;
  const auto flush = [&] {
    if (begin == end) return;
    EmitRun(region, offset + begin, bytes.subspan(begin, end - begin), why, torn);
    emitted += end - begin;
    begin = end = 0;
  };
  const auto changed = [&](size_t from, size_t to) {
    if (begin != end && from - end > kJoin) flush();
    if (begin == end) begin = from;
    end = to;
  };
  std::array<uint8_t, kBlock> old;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const size_t n = std::min(kBlock, bytes.size() - at);
    const std::span<uint8_t> was = std::span(old).first(n);
    const bool whole = known_(region, offset + at, was);
    if (whole && std::memcmp(was.data(), bytes.data() + at, n) == 0) continue;
    // Cells lie on 8-byte boundaries of the region, so that a 64-bit word is never cut.
    for (size_t cell = 0; cell < n;) {
      const size_t size = std::min<uint64_t>(kCell - (offset + at + cell) % kCell, n - cell);
      const std::span<uint8_t> part = was.subspan(cell, size);
      const bool same = (whole || known_(region, offset + at + cell, part)) &&
                        std::memcmp(part.data(), bytes.data() + at + cell, size) == 0;
      if (!same) changed(at + cell, at + cell + size);
      cell += size;
    }
  }
  flush();
  return emitted;
}

void ChangeStore::EmitRun(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes,
                          StoreWhy why, bool torn) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMaxRun));
    StoredRun run{.region = region,
                  .offset = offset,
                  .data = part,
                  .size = part.size(),
                  .why = why,
                  .torn = torn};
    if (part.size() >= kZeroRun && AllZero(part)) run.data = {};
    emit_(run);
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
}

}  // namespace tg::proxy
