// System management unit (power controller): two mailboxes, clock tables, mode-1 reset.
//
// Normal mailbox: argument in C2PMSG_82, message in 66, response in 90 (1 OK, 0xFE unknown
// message). Debug mailbox: 53, 75, 54. It answers only once its firmware is loaded.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "replay/sim/card.h"
#include "replay/sim/psp.h"

namespace tg::sim {

class Smu {
 public:
  // `mode1_reset` puts the whole card back; the response is stored after it.
  Smu(Card& card, const Psp& psp, std::function<void()> mode1_reset);
  void Reset();

  // Limits the driver set, MHz; 0 = not set. By clock domain id.
  uint32_t soft_min(uint32_t clock) const { return clock < kClocks ? soft_min_[clock] : 0; }
  uint32_t soft_max(uint32_t clock) const { return clock < kClocks ? soft_max_[clock] : 0; }

 private:
  static constexpr uint32_t kClocks = 32;
  // Message numbers of this card's firmware interface.
  struct Numbers {
    uint32_t version, dram_high, dram_low, enable_features, power_limit, table, frequency, soft_min,
        soft_max;
  };
  void Message(uint32_t message);
  void DebugMessage(uint32_t message);
  uint32_t DpmFrequency(uint32_t argument) const;
  const ClockDomain* Clock(uint32_t id) const;

  Card& card_;
  const Psp& psp_;
  Numbers numbers_;
  std::function<void()> mode1_reset_;
  Register message_, argument_, response_;
  Register debug_message_, debug_argument_, debug_response_;
  uint64_t table_address_ = 0;
  std::array<uint32_t, kClocks> soft_min_{};
  std::array<uint32_t, kClocks> soft_max_{};
};

}  // namespace tg::sim
