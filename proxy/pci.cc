#include "proxy/pci.h"

#include <algorithm>
#include <iterator>

namespace tg::proxy {
namespace {

constexpr uint16_t kAmd = 0x1002, kNvidia = 0x10de;
constexpr uint32_t kDisplay = 0x03, kAccelerator = 0x12;

// Whole device numbers.
constexpr uint16_t kAmdDevices[] = {0x74a1, 0x744c, 0x7480, 0x7550, 0x7551, 0x7590, 0x75a0, 0x75a8};
// The upper byte of the device number.
constexpr uint16_t kNvidiaFamilies[] = {0x2200, 0x2400, 0x2500, 0x2600, 0x2700,
                                        0x2800, 0x2b00, 0x2c00, 0x2d00, 0x2f00};

template <typename List>
bool Has(const List& list, uint16_t value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

}  // namespace

std::string WhyNotAmd(const PciDevice& device) {
  if (device.vendor != kAmd) return "vendor is not 1002";
  if (!Has(kAmdDevices, device.device)) return "not in the list of devices";
  return "";
}

std::string WhyNotNvidia(const PciDevice& device) {
  if (device.vendor != kNvidia) return "vendor is not 10de";
  if (device.class_code >> 16 != kDisplay) return "class is not 03 (display)";
  if (!Has(kNvidiaFamilies, device.device & 0xff00)) return "not in the list of families";
  return "";
}

bool WorthShowing(const PciDevice& device) {
  const uint32_t base = device.class_code >> 16;
  return base == kDisplay || base == kAccelerator || WhyNotAmd(device).empty() ||
         WhyNotNvidia(device).empty();
}

}  // namespace tg::proxy
