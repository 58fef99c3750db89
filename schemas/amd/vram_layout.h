// Where the AM driver puts things in VRAM: its boot allocator is deterministic, so the first 32 MiB
// look the same in every session (tinygrad runtime/support/am/amdev.py; versions since 0xA0000008).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "schemas/amd/ip.h"

namespace tg::amd {

inline constexpr uint64_t kVramRootTable = 0x0;
inline constexpr uint64_t kVramIhRing0 = 0x3000;
inline constexpr uint64_t kVramIhRing0Wptr = 0x43000;
inline constexpr uint64_t kVramIhRing1 = 0x44000;
inline constexpr uint64_t kVramIhRing1Wptr = 0x84000;
inline constexpr uint64_t kVramIhRingSize = 0x40000;
inline constexpr uint64_t kVramPspCommand = 0x85000;
inline constexpr uint64_t kVramPspFence = 0x86000;
inline constexpr uint64_t kVramPspRing = 0x87000;
inline constexpr uint64_t kVramPspRingSize = 0x10000;
inline constexpr uint64_t kVramSmuTable = 0x97000;
inline constexpr uint64_t kVramSmuTableSize = 0x4000;
inline constexpr uint64_t kVramMqd = 0x9b000;
inline constexpr uint64_t kVramPspMsg1 = 0x100000;
inline constexpr uint64_t kVramPspMsg1Size = 0x100000;
inline constexpr uint64_t kVramPspTmr = 0x200000;
inline constexpr uint64_t kVramPspTmrSize = 0x1300000;
inline constexpr uint64_t kVramBootSize = 32ull << 20;

// The discovery binary: 10 KiB, 64 KiB before the end of VRAM.
inline constexpr uint64_t kDiscoveryFromEnd = 0x10000;
inline constexpr uint64_t kDiscoverySize = 0x2800;

// Memory at the top that the driver leaves alone.
constexpr uint64_t ReservedVram(IpVersion gc) {
  return (gc.major == 9 && (gc.minor == 4 || gc.minor == 5) ? 384ull : 64ull) << 20;
}

// "PSP ring + 0x40", "IH ring 0 + 0x20"; "page tables and buffers" from 32 MiB on; empty in a gap.
// `xccs` scales the MQD area.
std::string VramPlaceName(uint64_t vram_offset, unsigned xccs = 1);

}  // namespace tg::amd
