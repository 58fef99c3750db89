// Interrupt handler: the ring in VRAM that the driver reads instead of taking interrupts.
//
// An entry is 32 bytes (amd-structs: dword 0 client, source, ring, vmid; 1-2 timestamp; 3 pasid;
// 4-7 context). The write pointer register holds a byte offset with the overflow flag in bit 0.
// tinygrad writes dwords where the hardware expects bytes into the read pointer; the card takes it
// for bytes, as the hardware does, and so believes the ring fuller than it is.
#pragma once

#include <array>
#include <cstdint>

#include "replay/sim/card.h"

namespace tg::sim {

// Client ids of gfx11 and gfx12 (kernel: soc21_ih_clientid.h).
enum class IhClient : uint8_t { kGfx = 10, kGrbmCp = 20 };
// Sources (kernel: ivsrcid/gfx/irqsrcs_gfx_11_0_0.h).
enum class IhSource : uint8_t {
  kUtcl2Fault = 0,
  kSdmaTrap = 49,
  kSdmaQueueHang = 55,
  kSdmaFrozen = 63,
  kCpReservedBit = 180,
  kCpBadOpcode = 183,
  kCpPrivilegedRegister = 184,
  kCpPrivilegedInstruction = 185,
  kSqInterrupt = 239,
};

struct IhEntry {
  IhClient client = IhClient::kGfx;
  IhSource source = IhSource::kUtcl2Fault;
  uint8_t ring = 0;  // CP: me << 2 | pipe | queue << 4
  uint8_t vmid = 0;
  std::array<uint32_t, 4> context{};
};

class Ih {
 public:
  explicit Ih(Card& card);
  void Push(const IhEntry& entry);

 private:
  uint64_t RingBytes() const;

  Card& card_;
  Register base_, base_hi_, cntl_, wptr_, rptr_;
};

}  // namespace tg::sim
