// Builds the IP discovery binary that lies 64 KiB below the end of VRAM, as the card's own firmware
// leaves it there: binary header, IP table, gc_info, harvest table, with sizes and checksums.
//
// Layout: kernel discovery.h; tinygrad reads 0x2800 bytes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/sim/asic.h"

namespace tg::sim {

inline constexpr uint64_t kDiscoverySize = 10 << 10;
inline constexpr uint64_t kDiscoveryOffset = 64 << 10;  // below the end of VRAM

struct HarvestedIp {
  uint16_t hw_id;
  uint8_t instance;
};

// Exactly kDiscoverySize bytes. `wide_bases` stores bases as u64 (tables of version 4 can).
std::vector<uint8_t> BuildDiscovery(const Asic& asic, bool wide_bases = false,
                                    std::span<const HarvestedIp> harvested = {});

}  // namespace tg::sim
