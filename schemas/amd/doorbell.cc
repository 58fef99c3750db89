#include "schemas/amd/doorbell.h"

#include <iterator>
#include <string_view>

namespace tg::amd {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
  std::string_view name;
  bool numbered;  // followed by the position within the range
};
constexpr Range kRanges[] = {
    {0, 0, "KIQ", false},         {1, 1, "HIQ", false},
    {2, 2, "DIQ", false},         {3, 10, "MEC ring", true},
    {11, 12, "MES ring", true},   {13, 138, "user queue", true},
    {139, 140, "GFX ring", true}, {141, 255, "GFX user queue", true},
    {376, 376, "IH", false},      {392, 399, "VCN", true},
    {400, 400, "VPE", false},
};

}  // namespace

std::string DoorbellName(uint32_t index) {
  // Ten slots each for four engines' paging, high-priority and other queues; beyond 296 only MI3xx.
  if (index >= kDoorbellSdma0 && index < kDoorbellIh) {
    const uint32_t engine = (index - kDoorbellSdma0) / 10;
    const uint32_t slot = (index - kDoorbellSdma0) % 10;
    std::string name = "SDMA engine " + std::to_string(engine);
    if (slot != 0) name += " slot " + std::to_string(slot);
    return name;
  }
  for (const Range& range : kRanges) {
    if (index < range.first || index > range.last) continue;
    std::string name(range.name);
    if (range.numbered) name += " " + std::to_string(index - range.first);
    return name;
  }
  return "doorbell " + std::to_string(index);
}

}  // namespace tg::amd
