// Brings the card up and down: the phases of tinygrad's AM driver, in its order (amd-boot: A to O
// and R). Firmware images are stand-ins: only a simulated card takes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "replay/client/card.h"
#include "replay/client/vm.h"

namespace tg::client {

// A ring in GPU address space, as a queue's set-up needs it.
struct RingSetup {
  uint64_t ring = 0;  // GPU addresses
  uint64_t size = 0;
  uint64_t rptr = 0;  // where the card reports its read pointer
  uint64_t wptr = 0;
  uint64_t eop = 0;  // compute: end-of-pipe buffer
  uint64_t eop_size = 0;
};

class Boot {
 public:
  Boot(Card& card, Vm& vm) : card_(card), vm_(vm) {}

  // `force_full`: as AM_RESET=1.
  void Run(bool force_full);
  bool partial() const { return partial_; }

  void SetUpCompute(const RingSetup& setup);
  void SetUpSdma(const RingSetup& setup);
  // Stops compute queues, restarts the micro engine: all that the driver's recovery resets.
  void ResetMec();
  void Finish(bool error);

  // Interrupt handling while waiting: reads new entries, then discards. True if one is an error.
  bool TakeInterrupts();
  // Discards without reading.
  void DrainInterrupts();

 private:
  void Soc();
  void Hub(const std::string& hub);
  void InterruptRings();
  void SecurityProcessor();
  void LoadComponent(uint32_t command, uint32_t size);
  void Upload(std::span<const uint8_t> image);
  void SubmitPsp(std::span<uint8_t> command);
  void LoadFirmware(std::span<const uint32_t> types, size_t size);
  void SetUpPowerController();
  void Graphics();
  void SetUpSdmaEngine();
  void Clocks(bool highest);
  void Gating();
  void ConfigMec();
  void EnableMec();
  void Dequeue();
  void Select(uint32_t me, uint32_t queue, uint32_t vmid);
  void EnableDoorbells(int port, uint32_t awid, uint32_t offset, uint32_t size);
  bool SosAlive();
  uint32_t Smu(std::string_view message, uint32_t argument, int limit_ms = 10'000);
  bool SmuAlive();
  void Mode1Reset();
  std::string Psp(int number) const;

  Card& card_;
  Vm& vm_;
  bool partial_ = false;
  bool sdma_up_ = false;
  // Clock domain and its levels in MHz; read once, as the driver does.
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> clock_levels_;
};

}  // namespace tg::client
