// One compute queue (HQD) of the command processor: executes PM4 or AQL packets up to what the
// doorbell announced. Control packets have their effect; a dispatch counts as done without any
// shader code being run.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/sim/engine.h"
#include "replay/sim/ih.h"
#include "schemas/amd/aql_packets.h"
#include "schemas/amd/pm4_packets.h"

namespace tg::sim {

struct CpQueueSetup {
  uint64_t base = 0;    // GPU address of the ring
  uint64_t size = 0;    // bytes
  uint64_t rptr = 0;    // bytes
  uint64_t wptr = 0;    // bytes
  uint64_t report = 0;  // where the read pointer goes
  bool report_enabled = true;
  bool aql = false;
  uint8_t ring_id = 0;  // me << 2 | pipe | queue << 4, as interrupts name it
};

class CpQueue {
 public:
  CpQueue(Card& card, GpuVm& vm, Ih& ih);

  void Activate(const CpQueueSetup& setup);
  void Deactivate();
  bool active() const { return active_; }
  bool aql() const { return setup_.aql; }
  // The doorbell's value as written: dwords (PM4) or the last packet's index (AQL).
  void Doorbell(uint64_t value);
  // Bytes, monotonic.
  uint64_t rptr() const { return ring_.at; }
  uint64_t wptr() const { return ring_.end; }

  Work Run(Budget& budget);
  Work state() const;

 private:
  enum class Step : uint8_t { kDone, kHeld, kMore, kHung };
  static constexpr size_t kMaxDepth = 8;

  bool Begin();
  bool BeginPm4(PacketStream& stream);
  bool BeginAql();
  void Finish();
  Step Continue();
  Step ContinueAql();
  Step Wait();
  Step Release();
  Step Dispatch();
  Step Indirect();
  Step CopyData();
  Step WriteData();
  Step SetRegisters(uint32_t first);
  Step Signal(uint64_t address);
  Step Bad(IhSource source = IhSource::kCpBadOpcode);
  // What a --hang rule does to kernels and signals; kDone: nothing.
  Step Struck();
  Step Hang();
  void Skip(uint64_t dwords);
  void ReportPointer();
  PacketStream& Stream() { return buffers_.empty() ? ring_ : buffers_.back(); }

  Card& card_;
  GpuVm& vm_;
  Ih& ih_;
  amd::Pm4Gen gen_;
  CpQueueSetup setup_;
  PacketStream ring_;
  std::vector<PacketStream> buffers_;  // indirect buffers, the innermost last
  bool active_ = false;
  bool hung_ = false;
  bool begun_ = false;       // packet_ is being executed
  bool aql_packet_ = false;  // packet_ is an AQL packet of the ring
  bool entered_ = false;     // packet_'s one-time part is done
  uint64_t not_before_ = 0;  // GPU clock: a slow kernel's end; 0: none runs
  uint64_t reported_ = UINT64_MAX;
  std::vector<uint8_t> bytes_;
  amd::DecodedPacket packet_;
};

}  // namespace tg::sim
