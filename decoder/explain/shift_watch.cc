#include "decoder/explain/shift_watch.h"

#include <algorithm>

namespace tg::explain {

void ShiftWatch::OnMemory(const model::MemoryAccess& access) {
  if (access.write || access.snapshot || access.space != model::Space::kVram || access.size != 4)
    return;
  // A card that is gone answers everything with ones, the pointers too.
  if (!access.data.empty() &&
      std::all_of(access.data.begin(), access.data.end(), [](uint8_t b) { return b == 0xff; }))
    return;
  const model::Ih& ih = device_.ih();
  if (!ih.wptr_raw() || !ih.rptr_raw()) return;
  if (access.offset < ih.ring_base() || access.offset >= ih.ring_base() + ih.ring_size()) return;
  // The write pointer counts bytes (bit 0: overflow), the read pointer dwords; see
  // schemas/amd/ih.h.
  if (*ih.wptr_raw() >> 2 != *ih.rptr_raw() || (*ih.wptr_raw() & 1)) return;
  if (reads_ == 0) first_ = access.at;
  reads_ += access.times;
  last_ = access.last ? access.last : access.at;
}

}  // namespace tg::explain
