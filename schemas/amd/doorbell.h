// Doorbells: 8-byte slots of BAR2. Which index belongs to which queue (kernel amdgpu_doorbell.h,
// AMDGPU_NAVI10_DOORBELL_*), as tinygrad uses them: compute ring 0 = 3, SDMA queue i = 256 + 10 *
// (i / 4
// + 4 * (i % 4)). DOORBELL_OFFSET register fields hold index * 2.
#pragma once

#include <cstdint>
#include <string>

namespace tg::amd {

inline constexpr uint32_t kDoorbellMecRing0 = 3;
inline constexpr uint32_t kDoorbellSdma0 = 256;
inline constexpr uint32_t kDoorbellIh = 376;

constexpr uint32_t SdmaDoorbell(uint32_t queue) {
  return kDoorbellSdma0 + 10 * (queue / 4 + 4 * (queue % 4));
}

// "MEC ring 0", "SDMA engine 0", "user queue", "doorbell 1000" past the map's end.
std::string DoorbellName(uint32_t index);

}  // namespace tg::amd
