#include "decoder/model/queue_memory.h"

#include <algorithm>
#include <cstring>

namespace tg::model {

bool QueueMemory::Read(uint64_t va, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const Place place = Locate(va);
    if (!place.readable() || place.run == 0) return false;
    const size_t n = std::min<uint64_t>(out.size(), place.run);
    if (!ReadPlace(place, out.first(n))) return false;
    out = out.subspan(n);
    va += n;
  }
  return true;
}

bool QueueMemory::Read32(uint64_t va, uint32_t& out) const {
  uint8_t b[4];
  if (!Read(va, b)) return false;
  out = static_cast<uint32_t>(b[0]) | static_cast<uint32_t>(b[1]) << 8 |
        static_cast<uint32_t>(b[2]) << 16 | static_cast<uint32_t>(b[3]) << 24;
  return true;
}

bool QueueMemory::Read64(uint64_t va, uint64_t& out) const {
  uint8_t b[8];
  if (!Read(va, b)) return false;
  out = 0;
  for (int i = 7; i >= 0; --i) out = out << 8 | b[i];
  return true;
}

}  // namespace tg::model
