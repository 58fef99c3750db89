#include "replay/sim/pci_config.h"

#include <bit>
#include <cstring>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

// PCI 3.0 and PCI Express register offsets.
enum : size_t {
  kVendor = 0x00,
  kCommand = 0x04,
  kStatus = 0x06,
  kRevision = 0x08,
  kCacheLine = 0x0c,
  kBars = 0x10,
  kSubsystem = 0x2c,
  kRom = 0x30,
  kCapabilities = 0x34,
  kInterrupt = 0x3c,
  kVendorCap = 0x48,
  kPowerCap = 0x50,
  kExpressCap = 0x64,
  kLinkControl = kExpressCap + 0x10,
  kMsiCap = 0xa0,
  kVendorExtCap = 0x100,
  kRebarExtCap = 0x200,
};
constexpr uint16_t kCommandMemory = 1 << 1;
constexpr uint16_t kCommandMaster = 1 << 2;
constexpr uint16_t kCommandBits = 0x0547;  // I/O, memory, master, parity, SERR, INTx disable
constexpr uint32_t kBarMem64Prefetch = 0xc;
constexpr uint32_t kBarIo = 1;
constexpr uint16_t kAspmL0sL1 = 3;

// Where the host placed the BARs.
constexpr uint64_t kBar0Address = 0x38'0000'0000;
constexpr uint64_t kBar2Address = 0x30'1000'0000;
constexpr uint64_t kBar4Address = 0xe000;
constexpr uint64_t kBar5Address = 0xf0a0'0000;

}  // namespace

template <typename T>
void PciConfig::Put(size_t at, T value, T writable) {
  StoreLe(&bytes_[at], value);
  StoreLe(&writable_[at], writable);
}

void PciConfig::PutBar(uint32_t bar, uint64_t address, uint64_t size, uint32_t flags) {
  sizes_[bar] = size;
  const uint64_t mask = ~(size - 1);
  const size_t at = kBars + 4 * bar;
  Put<uint32_t>(at, static_cast<uint32_t>(address & mask) | flags, static_cast<uint32_t>(mask));
  if (flags == kBarMem64Prefetch)
    Put<uint32_t>(at + 4, static_cast<uint32_t>(address >> 32), static_cast<uint32_t>(mask >> 32));
}

PciConfig::PciConfig(const Asic& asic, uint64_t bar0_size) {
  Put<uint16_t>(kVendor, 0x1002);
  Put<uint16_t>(kVendor + 2, asic.device_id);
  Put<uint16_t>(kStatus, 0x0010);                            // capability list
  Put<uint32_t>(kRevision, 0x030000u << 8 | asic.revision);  // VGA controller
  Put<uint32_t>(kCacheLine, 0x00800010, 0xffff);             // multifunction
  PutBar(0, kBar0Address, bar0_size, kBarMem64Prefetch);
  PutBar(2, kBar2Address, asic.bar2_size, kBarMem64Prefetch);
  PutBar(4, kBar4Address, 256, kBarIo);
  sizes_[4] = 0;  // ports cannot be mapped
  PutBar(5, kBar5Address, asic.bar5_size, 0);
  Put<uint32_t>(kSubsystem, asic.subsystem);
  Put<uint32_t>(kRom, 0, 0xfffe0001);  // 128 KiB, disabled
  Put<uint8_t>(kCapabilities, kVendorCap);
  Put<uint16_t>(kInterrupt, 0x01ff, 0x00ff);  // pin A

  // id | next << 8 | ...
  Put<uint32_t>(kVendorCap, 0x09 | kPowerCap << 8 | 8 << 16);
  Put<uint32_t>(kVendorCap + 4, asic.subsystem, ~0u);
  Put<uint32_t>(kPowerCap, 0x01 | kExpressCap << 8 | 0xf803u << 16);
  Put<uint32_t>(kPowerCap + 4, 0x8, 0x8103);                        // D0, no soft reset
  Put<uint32_t>(kExpressCap, 0x10 | kMsiCap << 8 | 0x0012u << 16);  // legacy endpoint, version 2
  Put<uint32_t>(kExpressCap + 4, 0x00008fa1);
  Put<uint16_t>(kExpressCap + 8, 0x2930, 0x7fff);
  Put<uint32_t>(kExpressCap + 0xc, 0x00400d04);  // link: 16 GT/s x16, ASPM L0s and L1
  Put<uint16_t>(kLinkControl, kAspmL0sL1, 0x0fff);
  Put<uint16_t>(kExpressCap + 0x12, 0x1043);     // 8 GT/s x4: what a USB4 tunnel leaves
  Put<uint32_t>(kMsiCap, 0x05 | 0x0080u << 16);  // 64-bit, disabled
  Put<uint16_t>(kMsiCap + 2, 0x0080, 0x0071);
  Put<uint32_t>(kMsiCap + 4, 0, ~3u);
  Put<uint32_t>(kMsiCap + 8, 0, ~0u);
  Put<uint16_t>(kMsiCap + 0xc, 0, 0xffff);

  // id | version << 16 | next << 20
  Put<uint32_t>(kVendorExtCap, 0x000b | 1u << 16 | kRebarExtCap << 20);
  Put<uint32_t>(kVendorExtCap + 4, 0x0001 | 1u << 16 | 0x010u << 20);
  Put<uint32_t>(kRebarExtCap, 0x0015 | 1u << 16);
  Put<uint32_t>(kRebarExtCap + 4, asic.rebar_sizes << 4);
  const auto log2_mib = static_cast<uint32_t>(std::countr_zero(bar0_size >> 20));
  Put<uint32_t>(kRebarExtCap + 8, 0 | 1u << 5 | log2_mib << 8);

  Put<uint16_t>(kCommand, 0, kCommandBits);
  Reset();
}

void PciConfig::Reset() {
  StoreLe<uint16_t>(&bytes_[kCommand], kCommandMemory);
  StoreLe<uint16_t>(&bytes_[kLinkControl], kAspmL0sL1);
}

uint32_t PciConfig::Read(uint64_t offset, uint64_t size) const {
  const bool fits = (size == 1 || size == 2 || size == 4) && offset <= bytes_.size() - size;
  if (!fits) return ~0u;
  uint32_t value = 0;
  std::memcpy(&value, &bytes_[offset], size);
  return value;
}

void PciConfig::Write(uint64_t offset, uint64_t size, uint32_t value) {
  const bool fits = (size == 1 || size == 2 || size == 4) && offset <= bytes_.size() - size;
  if (!fits) return;
  for (uint64_t i = 0; i < size; i++) {
    const uint8_t mask = writable_[offset + i];
    uint8_t& byte = bytes_[offset + i];
    byte = static_cast<uint8_t>((byte & ~mask) | (value >> (8 * i) & mask));
  }
}

bool PciConfig::memory_enabled() const {
  return LoadLe<uint16_t>(&bytes_[kCommand]) & kCommandMemory;
}

bool PciConfig::bus_master() const {
  return LoadLe<uint16_t>(&bytes_[kCommand]) & kCommandMaster;
}

uint64_t PciConfig::bar_size(uint32_t bar) const {
  return bar < sizes_.size() ? sizes_[bar] : 0;
}

uint64_t PciConfig::bar_address(uint32_t bar) const {
  if (bar_size(bar) == 0) return 0;
  const uint32_t low = LoadLe<uint32_t>(&bytes_[kBars + 4 * bar]);
  uint64_t address = low & ~0xfu;
  if ((low & 0xf) == kBarMem64Prefetch)
    address |= static_cast<uint64_t>(LoadLe<uint32_t>(&bytes_[kBars + 4 * bar + 4])) << 32;
  return address;
}

}  // namespace tg::sim
