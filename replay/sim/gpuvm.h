// The GPU's virtual memory: both hubs' registers, walks of the page tables that the driver wrote
// into VRAM, and what the engines may do with an address. There is no TLB here: an entry counts
// from the moment it is in memory.
//
// An access that finds no valid mapping, or not the permission, is latched in the fault status
// register, raises an interrupt, and goes to the dummy page, as the driver sets the context up.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "replay/sim/card.h"
#include "replay/sim/ih.h"
#include "schemas/amd/pte.h"

namespace tg::sim {

// Client ids of the GC hub's fault status (kernel: gmc_v11_0.c).
enum class VmClient : uint16_t { kCpc = 5, kSdma0 = 13 };

struct Translation {
  enum class Kind : uint8_t { kVram, kHost, kFault };
  Kind kind = Kind::kFault;
  uint64_t address = 0;  // offset in VRAM, or DMA address
  uint64_t bytes = 0;    // that lie contiguous from there within the mapping
  uint8_t walker_error = 0;
  uint8_t permissions = 0;
};

class GpuVm {
 public:
  GpuVm(Card& card, Ih& ih);

  // Where an address leads, without any effect.
  Translation Walk(uint64_t va, bool write) const;

  // Memory behind an address for an engine's access.
  struct Run {
    uint8_t* data = nullptr;  // nullptr: nobody there (reads give ff, writes are lost)
    uint64_t bytes = 0;       // at least 1
    bool halt = false;        // the injected fault says that the engine stops
  };
  Run Access(uint64_t va, bool write, VmClient client);

  // A fault that --hang asked for: latched and raised like any other.
  void Inject(uint64_t va, bool write, VmClient client);

  // False: the engine must stop. Out-of-reach memory reads as ff.
  bool Read(uint64_t va, std::span<uint8_t> out, VmClient client);
  bool Write(uint64_t va, std::span<const uint8_t> in, VmClient client);
  bool Load32(uint64_t va, uint32_t& value, VmClient client);
  // One store of 4 or 8 bytes, ordered after all earlier ones (it tells the host of them).
  bool Store(uint64_t va, uint64_t value, uint32_t bytes, VmClient client);

 private:
  void DefineHub(const char* prefix);
  void DefineFaults();
  void ReportFault(uint64_t va, bool write, VmClient client, const Translation& translation);
  Run DummyPage(uint64_t va);
  Run HostRun(uint64_t dma, uint64_t bytes);
  uint64_t Pair(const Register& low, const Register& high) const;

  Card& card_;
  Ih& ih_;
  amd::PteFormat format_;
  Register cntl_, base_lo_, base_hi_, start_lo_, start_hi_, end_lo_, end_hi_;
  Register dummy_lo_, dummy_hi_;
  Register fault_cntl_, fault_status_, fault_lo_, fault_hi_;
};

}  // namespace tg::sim
