// How a queue is set up, read from register writes and from MQDs.
//
// SDMA: regSDMA<engine>_QUEUE<n>_* (5.x and later) or regSDMA_GFX_* with the engine as instance
// (MI3xx). Compute: regCP_HQD_* of whatever me/pipe/queue regGRBM_GFX_CNTL selects, one set per
// XCC; the same words stand in the MQD that the driver writes to VRAM before. Facts: kernel
// register headers gc 9.4.3 .. 12.0.0, sdma 4.4.2; amd-structs MQD layout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tg::model {

enum class QueueReg : uint8_t {
  kControl,  // RB_CNTL, HQD_PQ_CONTROL
  kBase,
  kBaseHi,  // ring VA >> 8
  kRptr,
  kRptrHi,
  kWptr,
  kWptrHi,
  kRptrAddr,
  kRptrAddrHi,  // where the GPU reports its read pointer
  kWptrAddr,
  kWptrAddrHi,      // where the host leaves its write pointer
  kDoorbell,        // SDMA DOORBELL: enable
  kDoorbellOffset,  // SDMA DOORBELL_OFFSET, HQD_PQ_DOORBELL_CONTROL
  kActive,
  kDequeue,
  kAqlControl,
};

struct QueueRegister {
  bool sdma = true;
  uint32_t engine = 0;  // SDMA: from the name, or from the instance
  uint32_t queue = 0;
  QueueReg reg = QueueReg::kControl;
};

// `name` as in the register tables. Nothing for registers of no queue. An SDMA name without an
// engine number (MI3xx) takes `instance`.
std::optional<QueueRegister> ParseQueueRegister(std::string_view name, uint32_t instance);
bool IsQueueSelect(std::string_view name);  // regGRBM_GFX_CNTL

struct QueueSelect {
  uint8_t me = 0, pipe = 0, queue = 0, vmid = 0;
  friend bool operator==(const QueueSelect&, const QueueSelect&) = default;
};
QueueSelect DecodeQueueSelect(uint32_t grbm_gfx_cntl);

// A 64-bit value that is written in two halves.
struct Halves {
  std::optional<uint32_t> lo, hi;
  void Set(bool high, uint32_t value) { (high ? hi : lo) = value; }
  bool known() const { return lo.has_value(); }
  uint64_t value() const { return static_cast<uint64_t>(hi.value_or(0)) << 32 | lo.value_or(0); }
};

struct QueueSetup {
  Halves base, rptr, wptr, rptr_addr, wptr_addr;
  std::optional<uint32_t> control;
  std::optional<uint32_t> doorbell_control;
  bool enabled = false;
  bool aql = false;

  std::optional<uint64_t> ring_va() const;
  std::optional<uint64_t> ring_bytes(bool sdma) const;
  // Byte offset in BAR2. The register's field counts 4-byte slots.
  std::optional<uint32_t> doorbell_offset() const;
};

// An MQD (amd-structs: header 0xC0310800, at least 0x2d8 bytes), or nothing.
std::optional<QueueSetup> ParseMqd(std::span<const uint8_t> bytes);

}  // namespace tg::model
