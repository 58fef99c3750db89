// Command processor: hardware queue descriptors (HQDs), selected by GRBM_GFX_CNTL, and the compute
// queues of pipe 0 of the first micro engine (MEC) behind them. Also the graphics block's resets
// and the few RLC registers that the driver waits for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "replay/sim/cp_queue.h"
#include "replay/sim/psp.h"

namespace tg::sim {

class Cp {
 public:
  Cp(Card& card, GpuVm& vm, Ih& ih, const Psp& psp);
  void Reset();
  // Reset of the compute pipe: queues stop wherever they are, and have to be set up again.
  void StopAll();

  // The queue that listens to this doorbell (dword index), or nullptr.
  CpQueue* Claims(uint32_t doorbell);
  Work Run(Budget& budget);
  Work state() const;

 private:
  static constexpr size_t kQueues = 8;
  uint32_t Selected() const;
  std::vector<uint32_t>& BankOf(uint32_t selected);
  std::vector<uint32_t>& QueueBank(size_t queue);
  CpQueue* SelectedQueue();
  void DefineHqd();
  void HqdWritten(uint32_t word, uint32_t value);
  uint32_t HqdRead(uint32_t word);
  void Activate(size_t queue);
  bool Switched() const;
  uint32_t Word(const char* name) const;
  uint32_t Field(uint32_t word, const char* reg, const char* field, size_t queue);

  Card& card_;
  const Psp& psp_;
  Register select_, mec_cntl_, range_low_, range_high_;
  uint32_t first_ = 0;  // dword index of CP_MQD_BASE_ADDR
  uint32_t count_ = 0;  // registers from there to CP_HQD_PQ_WPTR_HI
  // Positions in that range.
  uint32_t active_, vmid_, base_, base_hi_, rptr_, report_, report_hi_, doorbell_, control_,
      dequeue_, aql_, wptr_, wptr_hi_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> banks_;  // by selection: at most 128
  std::array<std::unique_ptr<CpQueue>, kQueues> queues_;
};

}  // namespace tg::sim
