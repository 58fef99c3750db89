// The simulated card: configuration space, BARs, and everything behind them.
//
// One thread. Requests of the server call Cfg*, Bar* and Reset; a doorbell runs the engines at
// once, up to a budget; Run() takes them further, to be called again while it says that work is
// left. State outlives clients, as on a real card: only resets clear it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "replay/sim/card.h"
#include "replay/sim/engine.h"
#include "schemas/result.h"

namespace tg::sim {

class Psp;
class Smu;
class Nbio;
class Ih;
class GpuVm;
class SdmaEngine;
class Cp;

struct GpuOptions {
  const Asic* asic = nullptr;  // nullptr: the first of AllAsics()
  uint64_t bar0_size = 0;      // 0: as large as the card has it
};

class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> Create(const GpuOptions& options);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  uint32_t CfgRead(uint64_t offset, uint64_t size);
  void CfgWrite(uint64_t offset, uint64_t size, uint32_t value);

  // 0 for a BAR the card does not have.
  uint64_t BarSize(uint32_t bar) const { return card_.pci.bar_size(bar); }
  uint64_t BarAddress(uint32_t bar) const { return card_.pci.bar_address(bar); }
  // [offset, offset + size) must lie within the BAR. Accesses are 32 bits wide, in ascending order,
  // as TinyGPU.app makes them.
  void BarRead(uint32_t bar, uint64_t offset, std::span<uint8_t> out);
  void BarWrite(uint32_t bar, uint64_t offset, std::span<const uint8_t> in);

  // Function or hot reset by the host: everything but what configuration space keeps is as after
  // power-on.
  void Reset();
  // The card falls off the bus, or comes back.
  void SetGone(bool gone) { card_.gone = gone; }

  Work Run();
  // Work is announced that is not done: Run() may get on with it. False also while all that is left
  // is stuck for good.
  bool pending() const;

  HostMemory& host() { return card_.host; }
  HangPlan& hangs() { return card_.hangs; }
  Card& card() { return card_; }
  const Card& card() const { return card_; }
  Smu& smu() { return *smu_; }
  GpuVm& vm() { return *vm_; }
  Ih& ih() { return *ih_; }

 private:
  explicit Gpu(const Asic& asic, std::span<const amd::IpBlock> ips, uint64_t bar0_size, Vram vram);
  void PowerOn();
  void ReadVram(uint64_t offset, std::span<uint8_t> out);
  void WriteVram(uint64_t offset, std::span<const uint8_t> in);
  void ReadRegisters(uint64_t offset, std::span<uint8_t> out);
  void WriteRegisters(uint64_t offset, std::span<const uint8_t> in);
  void WriteDoorbells(uint64_t offset, std::span<const uint8_t> in);
  void RingDoorbell(uint64_t slot);

  Card card_;
  std::vector<uint8_t> doorbells_;  // BAR2 as last written
  std::unique_ptr<Psp> psp_;
  std::unique_ptr<Smu> smu_;
  std::unique_ptr<Nbio> nbio_;
  std::unique_ptr<Ih> ih_;
  std::unique_ptr<GpuVm> vm_;
  std::unique_ptr<SdmaEngine> sdma_;
  std::unique_ptr<Cp> cp_;
};

}  // namespace tg::sim
