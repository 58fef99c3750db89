// The interrupt ring (IH): 32-byte entries that the GPU writes into VRAM and the driver reads.
//
//   dword 0   7:0 client | 15:8 source | 23:16 ring | 27:24 vmid | 31 vmid type
//         1,2 timestamp
//         3   15:0 pasid | 23:16 node
//         4-7 context id 0..3
//
// IH_RB_WPTR: bit 0 overflow, bits 17:2 write offset in dwords. tinygrad writes and reads
// IH_RB_RPTR as a plain dword index (the hardware field is 17:2 too): treat its raw value as
// dwords.
//
// Facts: kernel soc15_ih_clientid.h and ivsrcid/*; tinygrad runtime/support/am/ip.py, AM_IH.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schemas/amd/ip.h"

namespace tg::amd {

inline constexpr uint32_t kIhEntrySize = 32;
inline constexpr uint32_t kIhEntryDwords = 8;

struct IhWptr {
  bool overflow = false;
  uint32_t dword = 0;
};
constexpr IhWptr DecodeIhWptr(uint32_t raw) {
  return {(raw & 1) != 0, (raw >> 2) & 0xffff};
}

struct IhEntry {
  uint8_t client = 0;
  uint8_t source = 0;
  uint8_t ring = 0;
  uint8_t vmid = 0;
  bool vmid_type = false;
  uint64_t timestamp = 0;  // 48 bits
  uint16_t pasid = 0;
  uint8_t node = 0;
  std::array<uint32_t, 4> context{};
};
IhEntry DecodeIhEntry(std::span<const uint32_t, kIhEntryDwords> dwords);

// "GFX", "SDMA0", or "client 9". Clients of gfx11/12 (SOC21) and gfx9 (SOC15) differ.
std::string IhClientName(IpVersion gc, uint8_t client);
// "SDMA_QUEUE_HANG", or empty where the driver has no name for it.
std::string_view IhSourceName(IpVersion gc, uint8_t client, uint8_t source);

// What tinygrad's interrupt handler does with an entry.
enum class IhEffect : uint8_t {
  kIgnored,      // SDMA_TRAP, or a shader interrupt that is not an error
  kError,        // sets the device's error state
  kPageFault,    // error state, and it reads and clears the fault registers
  kShaderError,  // error state
};
struct IhMeaning {
  IhEffect effect = IhEffect::kError;
  std::string text;  // "GRBM_CP CP_BAD_OPCODE_ERROR", "SQ error ILLEGAL_INST"
};
IhMeaning ExplainIhEntry(IpVersion gc, const IhEntry& entry);

}  // namespace tg::amd
