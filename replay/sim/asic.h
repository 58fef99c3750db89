// The cards the simulator can be: everything that differs between them, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schemas/amd/ip.h"

namespace tg::sim {

// One entry of the IP discovery table. Bases are dword indices into the register space.
struct AsicIp {
  uint16_t hw_id;
  uint8_t instance;
  amd::IpVersion version;
  std::span<const uint32_t> bases;
};

// gc_info, in the order of the table behind its 12-byte header (see schemas/amd: discovery). Fields
// past what `minor` has are not stored.
struct GcInfo {
  uint16_t major;
  uint16_t minor;
  std::span<const uint32_t> words;
};

// Levels of one clock domain, lowest first, in MHz, as the SMU's GetDpmFreqByIndex tells them.
struct ClockDomain {
  uint32_t id;
  std::string_view name;
  std::span<const uint16_t> mhz;
};

struct Asic {
  std::string_view name;     // what --asic takes
  std::string_view product;  // for people
  std::string_view gfx;      // "gfx1100"
  uint16_t device_id;        // vendor is 1002
  uint8_t revision;
  uint32_t subsystem;  // subsystem id << 16 | vendor
  uint64_t vram_mib;   // RCC_CONFIG_MEMSIZE; a bit less than the memory soldered on
  uint64_t bar0_full;  // bytes, resizable BAR at its largest
  uint64_t bar2_size;
  uint64_t bar5_size;
  uint32_t rebar_sizes;  // supported sizes of BAR 0: bit n = 1 MiB << n
  uint16_t discovery_version;
  std::span<const AsicIp> ips;
  GcInfo gc;
  std::span<const ClockDomain> clocks;
  uint32_t smu_version;
  uint32_t sos_version;
};

inline constexpr uint64_t kSmallBar0 = 256ull << 20;
inline constexpr uint64_t kFbBase = 0x8000ull << 24;  // MC address of VRAM 0 (FB_LOCATION_BASE)

// nullptr if there is none of that name.
const Asic* FindAsic(std::string_view name);
std::span<const Asic> AllAsics();

}  // namespace tg::sim
