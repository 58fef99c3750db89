// SDMA engine 0, queue 0: executes the packets of the ring that the driver set up, up to the write
// pointer that the doorbell announced.
//
// A packet that cannot be executed freezes the engine until its reset, as does --hang sdma-stall:
// GRBM_SOFT_RESET.soft_reset_sdma0 or a mode-1 reset. Setting up the queue again does not help.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/sim/engine.h"
#include "replay/sim/psp.h"
#include "schemas/amd/sdma_packets.h"

namespace tg::sim {

class SdmaEngine {
 public:
  SdmaEngine(Card& card, GpuVm& vm, Ih& ih, const Psp& psp);
  void Reset();

  // True if the queue listens to this doorbell (dword index).
  bool Claims(uint32_t doorbell) const;
  void Doorbell(uint64_t wptr);

  Work Run(Budget& budget);
  // What Run would find, without running.
  Work state() const;

 private:
  enum class Step : uint8_t { kDone, kHeld, kMore, kFrozen };
  bool Switched() const;
  void QueueControl();
  bool Begin();  // takes up the next packet; false if there is none (whole) yet
  Step Continue(Budget& budget);
  Step Copy(Budget& budget);
  Step Poll();
  Step Fence();
  Step WriteWords();
  Step Fill(Budget& budget);
  Step Indirect();
  Step Simple();
  void Freeze();
  void Finish();
  void ReportPointer();
  PacketStream& Stream() { return in_buffer_ ? buffer_ : ring_; }

  Card& card_;
  GpuVm& vm_;
  Ih& ih_;
  const Psp& psp_;
  amd::SdmaGen gen_;
  Register rb_cntl_, base_, base_hi_, rptr_, rptr_hi_, wptr_, wptr_hi_;
  Register report_lo_, report_hi_, doorbell_, doorbell_offset_;
  Register halt_, cntl_;

  PacketStream ring_;
  PacketStream buffer_;  // an INDIRECT packet's
  bool in_buffer_ = false;
  bool enabled_ = false;
  bool frozen_ = false;
  bool active_ = false;    // packet_ is being executed
  bool never_ = false;     // --hang sdma-poll-never struck this packet
  uint64_t progress_ = 0;  // bytes of the packet's work done
  uint64_t reported_ = UINT64_MAX;
  std::vector<uint8_t> bytes_;
  amd::DecodedPacket packet_;  // its raw bytes lie in bytes_
};

}  // namespace tg::sim
