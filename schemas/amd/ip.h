// The blocks ("IPs") a GPU is made of: which one, which version, where its registers begin.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::amd {

struct IpVersion {
  uint8_t major = 0;
  uint8_t minor = 0;
  uint8_t revision = 0;
  friend auto operator<=>(const IpVersion&, const IpVersion&) = default;
};
std::string ToString(const IpVersion& version);  // "11.0.0"

// hw_id of the IP discovery table (kernel: soc15_hw_ip.h), for the ones we reason about.
enum HwId : uint16_t {
  kHwMp1 = 1,
  kHwGc = 11,
  kHwMmhub = 34,
  kHwOsssys = 40,
  kHwHdp = 41,
  kHwSdma0 = 42,
  kHwSdma1 = 43,
  kHwSdma2 = 68,
  kHwSdma3 = 69,
  kHwNbif = 108,
  kHwMp0 = 255,
};

// "GC", "SDMA0", or "hw id 77" for an unknown one.
std::string HwIdName(uint16_t hw_id);
// True for the ids that tinygrad knows (its hw_id_map).
bool IsKnownHwId(uint16_t hw_id);

// "navi31" for the version of a graphics core, empty for one we do not know.
std::string_view AsicName(IpVersion gc);

// One entry of the discovery table.
struct IpBlock {
  uint16_t hw_id = 0;
  uint8_t instance = 0;
  IpVersion version;
  uint16_t die = 0;
  bool harvested = false;       // switched off in this card
  std::vector<uint64_t> bases;  // dword indices
};

}  // namespace tg::amd
