// What the two queue engines share: where packets come from, how much they may do at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "replay/sim/gpuvm.h"

namespace tg::sim {

// How far an engine may go before the server looks at its client again. Rings are the client's: one
// that loops for ever must not keep the server.
struct Budget {
  uint32_t packets = 4096;
  uint64_t bytes = 16 << 20;
  bool left() const { return packets > 0 && bytes > 0; }
  void Spend(uint64_t count) { bytes -= std::min(bytes, count); }
};

enum class Work : uint8_t {
  kIdle,      // nothing announced that is not done
  kWaiting,   // held by a value in memory or a switched-off engine: look again later
  kRunnable,  // the budget ended first
  kStuck,     // moves only after a reset
};

// A ring or an indirect buffer, read in order.
struct PacketStream {
  uint64_t base = 0;       // GPU address
  uint64_t ring_size = 0;  // bytes; 0: not a ring
  uint64_t at = 0;         // bytes, monotonic
  uint64_t end = 0;

  uint64_t left() const { return at < end ? end - at : 0; }
  // The next `count` bytes, without moving. False: the engine must stop.
  bool Peek(GpuVm& vm, VmClient client, uint64_t count, std::vector<uint8_t>& out) const {
    out.resize(count);
    std::span<uint8_t> rest(out);
    uint64_t from = at;
    while (!rest.empty()) {
      const uint64_t offset = ring_size ? from % ring_size : from;
      const uint64_t piece =
          ring_size ? std::min<uint64_t>(rest.size(), ring_size - offset) : rest.size();
      if (!vm.Read(base + offset, rest.first(piece), client)) return false;
      rest = rest.subspan(piece);
      from += piece;
    }
    return true;
  }
};

}  // namespace tg::sim
