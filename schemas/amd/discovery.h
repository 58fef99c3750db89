// The IP discovery binary: what a card says of itself. 10 KiB at the end of VRAM, written by its
// firmware; here it comes out of a trace, so every offset and count in it is untrusted.
//
//   binary header  +0 u32 0x28211407 | +4 u16 major | +6 u16 minor | +8 u16 checksum | +a u16 size
//                  +c six tables of {u16 offset, u16 checksum, u16 size, u16}: IP, GC, HARVEST, ...
//   IP table       +0 u32 "IPDS" | +4 u16 version | +6 u16 size | +8 u32 id | +c u16 dies
//                  +e 16 x {u16 die id, u16 offset of {u16 die id, u16 entries}} | +4e bit 0:
//                  64-bit bases
//   IP entry       u16 hw id | u8 instance | u8 bases | u8 major minor revision | u8 | bases
//   HARVEST table  +0 u32 "HARV" | +4 u32 | +8 32 x {u16 hw id, u8 instance, u8}
//   GC table       +0 u32 | +4 u16 major | +6 u16 minor | +8 u32 size | u32 fields
//
// Facts: kernel discovery.h; which parts count and how properties follow from them: tinygrad
// amdev.py (_run_discovery) and ops_amd.py (_compute_props).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schemas/amd/ip.h"
#include "schemas/result.h"

namespace tg::amd {

inline constexpr uint32_t kDiscoverySignature = 0x28211407;
inline constexpr uint32_t kIpTableSignature = 0x53445049;  // "IPDS"
inline constexpr uint32_t kHarvestSignature = 0x56524148;  // "HARV"
inline constexpr size_t kMaxIpBlocks = 4096;

// Shape of the graphics core. Fields of one table version only are 0 in the other.
struct GcInfo {
  uint16_t version_major = 0;
  uint16_t version_minor = 0;
  uint32_t num_se = 0;
  uint32_t num_wgp0_per_sa = 0;  // v1
  uint32_t num_wgp1_per_sa = 0;  // v1
  uint32_t num_sa_per_se = 0;    // v1
  uint32_t num_cu_per_sh = 0;    // v2
  uint32_t num_sh_per_se = 0;    // v2
  uint32_t num_rb_per_se = 0;
  uint32_t num_l2 = 0;  // gl2c (v1), tccs (v2)
  uint32_t wave_size = 0;
  uint32_t max_waves_per_simd = 0;
  uint32_t max_scratch_slots_per_cu = 0;
  uint32_t lds_size = 0;  // KiB
};

struct HarvestedIp {
  uint16_t hw_id = 0;
  uint8_t instance = 0;
};

// What tinygrad's device properties come out as (its names).
struct DeviceProps {
  uint32_t gfx_target_version = 0;  // 110000
  uint32_t num_xcc = 0;
  uint32_t cu_per_simd_array = 0;
  uint32_t simd_arrays_per_engine = 0;
  uint32_t array_count = 0;
  uint32_t simd_count = 0;
  uint32_t simd_per_cu = 0;
  uint32_t max_waves_per_simd = 0;
  uint32_t max_slots_scratch_cu = 0;
  uint32_t lds_size_in_kb = 0;
  // Derived, per XCC.
  uint32_t se_cnt = 0;
  uint32_t cu_cnt = 0;
  std::string arch;       // "gfx1100"
  bool accepted = false;  // by tinygrad's AM driver: 9.4.2, 9.5.0, 11.x, 12.x

  // Name and value of each numeric one, in tinygrad's words.
  std::vector<std::pair<std::string, uint32_t>> Items() const;
};

struct Discovery {
  uint16_t version_major = 0;
  uint16_t version_minor = 0;
  uint16_t size = 0;
  bool checksum_ok = false;
  uint16_t ip_table_version = 0;
  uint16_t dies = 0;
  bool base_64 = false;
  std::vector<IpBlock> ips;  // in table order; unknown hw ids too
  std::vector<HarvestedIp> harvested;
  std::optional<GcInfo> gc;
  std::vector<std::string> problems;  // what did not add up; everything readable is still there

  // Version of a block as tinygrad takes it: the last entry's.
  std::optional<IpVersion> Version(uint16_t hw_id) const;
  // Distinct instances that are not harvested.
  uint32_t LiveInstances(uint16_t hw_id) const;
  // Needs GC's version and gc_info.
  std::optional<DeviceProps> Props() const;
};

// An error only when it is no discovery binary at all (wrong signatures, too short for them).
Result<Discovery> ParseDiscovery(std::span<const uint8_t> bytes);

// "gfx1100"; 9.4.3 is gfx942.
std::string GfxArch(IpVersion gc);
uint32_t GfxTargetVersion(IpVersion gc);

}  // namespace tg::amd
