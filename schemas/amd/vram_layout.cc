#include "schemas/amd/vram_layout.h"

#include <cstdio>
#include <string_view>

namespace tg::amd {
namespace {

struct Place {
  uint64_t begin;
  uint64_t size;
  std::string_view name;
};
constexpr Place kPlaces[] = {
    {kVramRootTable, 0x1000, "root page table"},
    {0x1000, 0x1000, "system aperture default page"},
    {0x2000, 0x1000, "dummy page of faults"},
    {kVramIhRing0, kVramIhRingSize, "IH ring 0"},
    {kVramIhRing0Wptr, 0x1000, "IH ring 0 write pointer"},
    {kVramIhRing1, kVramIhRingSize, "IH ring 1"},
    {kVramIhRing1Wptr, 0x1000, "IH ring 1 write pointer"},
    {kVramPspCommand, 0x1000, "PSP command buffer"},
    {kVramPspFence, 0x1000, "PSP fence"},
    {kVramPspRing, kVramPspRingSize, "PSP ring"},
    {kVramSmuTable, kVramSmuTableSize, "SMU driver table"},
    {kVramPspMsg1, kVramPspMsg1Size, "PSP upload buffer"},
    {kVramPspTmr, kVramPspTmrSize, "PSP TMR"},
};

std::string Named(std::string_view name, uint64_t offset) {
  std::string text(name);
  if (offset != 0) {
    char hex[32];
    std::snprintf(hex, sizeof hex, " + 0x%llx", static_cast<unsigned long long>(offset));
    text += hex;
  }
  return text;
}

}  // namespace

std::string VramPlaceName(uint64_t vram_offset, unsigned xccs) {
  for (const Place& place : kPlaces) {
    if (vram_offset - place.begin < place.size) {
      return Named(place.name, vram_offset - place.begin);
    }
  }
  const uint64_t mqd_size = 0x1000ull * (xccs == 0 ? 1 : xccs);
  if (vram_offset - kVramMqd < 2 * mqd_size) {
    const uint64_t queue = (vram_offset - kVramMqd) / mqd_size;
    return Named("MQD of queue " + std::to_string(queue), (vram_offset - kVramMqd) % mqd_size);
  }
  return vram_offset >= kVramBootSize ? "page tables and buffers" : "";
}

}  // namespace tg::amd
