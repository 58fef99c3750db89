// What the blocks of the simulated card share: memory, registers, configuration space, counters.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "replay/sim/asic.h"
#include "replay/sim/hang.h"
#include "replay/sim/host_memory.h"
#include "replay/sim/pci_config.h"
#include "replay/sim/register_file.h"
#include "replay/sim/vram.h"

namespace tg::sim {

// What happened, for the report at exit.
struct Counters {
  uint64_t resets = 0;  // mode-1, function resets
  uint64_t hdp_flushes = 0;
  uint64_t tlb_flushes = 0;
  uint64_t psp_commands = 0;
  uint64_t psp_rejected = 0;
  uint64_t smu_messages = 0;
  uint64_t smu_rejected = 0;
  uint64_t interrupts = 0;
  uint64_t interrupts_dropped = 0;  // ring off, or no memory behind it

  uint64_t doorbells = 0;
  uint64_t doorbells_gated = 0;      // aperture or routing entry off
  uint64_t doorbells_unclaimed = 0;  // no queue listens there
  uint64_t sdma_packets = 0;
  uint64_t sdma_copies = 0;
  uint64_t sdma_bytes = 0;
  uint64_t sdma_fences = 0;
  uint64_t sdma_bad_packets = 0;
  uint64_t sdma_skipped = 0;  // known packets this model has no effect for
  uint64_t compute_packets = 0;
  uint64_t compute_dispatches = 0;  // kernels, none of which ran
  uint64_t compute_signals = 0;
  uint64_t compute_bad_packets = 0;
  uint64_t compute_skipped = 0;

  uint64_t page_faults = 0;
  uint64_t dma_blocked = 0;     // bus master off, or the card gone
  uint64_t dma_unanswered = 0;  // no memory at that DMA address
  uint64_t mmio_dropped = 0;    // accesses while memory decoding is off or the card is gone
};

// The GPU's reference clock: 100 MHz on these boards.
inline constexpr uint64_t kTicksPerMicrosecond = 100;
inline uint64_t GpuClock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) /
         10;
}

struct Card {
  Card(const Asic& the_asic, std::span<const amd::IpBlock> ips, uint64_t bar0_size, Vram memory)
      : asic(the_asic), pci(the_asic, bar0_size), vram(std::move(memory)), regs(ips) {}

  const Asic& asic;
  PciConfig pci;
  Vram vram;
  HostMemory host;
  RegisterFile regs;
  HangPlan hangs;
  Counters counters;
  bool gone = false;   // fell off the bus (--hang all-ones)
  bool fatal = false;  // engines stopped by an error that only a reset clears (--hang ras)

  amd::IpVersion Version(uint16_t hw_id) const {
    for (const AsicIp& ip : asic.ips)
      if (ip.hw_id == hw_id) return ip.version;
    return {};
  }
  // VRAM by MC address (as PSP, IH and the system aperture use it); empty outside of VRAM.
  std::span<uint8_t> Mc(uint64_t address, uint64_t count) {
    return address < kFbBase ? std::span<uint8_t>() : vram.At(address - kFbBase, count);
  }
};

}  // namespace tg::sim
