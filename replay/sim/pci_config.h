// The card's PCI configuration space: 4 KiB with a type 0 header, the capability list lspci shows
// for these boards, BARs that can be sized and moved, and the command register that gates
// everything.
#pragma once

#include <array>
#include <cstdint>

#include "replay/sim/asic.h"

namespace tg::sim {

class PciConfig {
 public:
  // `bar0_size` as the host has it now: a power of two of at least 1 MiB.
  PciConfig(const Asic& asic, uint64_t bar0_size);

  // Bytes beyond the space, and sizes other than 1, 2 and 4, read as all ones and write nowhere.
  uint32_t Read(uint64_t offset, uint64_t size) const;
  void Write(uint64_t offset, uint64_t size, uint32_t value);

  bool memory_enabled() const;  // COMMAND bit 1: BARs answer
  bool bus_master() const;      // COMMAND bit 2: DMA is let out
  // Sizes and addresses; 0 for a BAR the card does not have (1, 3: upper halves; 4: I/O ports).
  uint64_t bar_size(uint32_t bar) const;
  uint64_t bar_address(uint32_t bar) const;
  // COMMAND and the link control register as after a reset; BARs keep what the host gave them (it
  // restores them).
  void Reset();

 private:
  template <typename T>
  void Put(size_t at, T value, T writable = 0);
  void PutBar(uint32_t bar, uint64_t address, uint64_t size, uint32_t flags);

  std::array<uint8_t, 4096> bytes_{};
  std::array<uint8_t, 4096> writable_{};
  std::array<uint64_t, 6> sizes_{};
};

}  // namespace tg::sim
