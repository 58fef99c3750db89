// Security processor: its bootloader, the sOS it starts, and the command ring through which the
// driver hands over the firmware of all other blocks. No code is run: what was loaded is
// remembered, since the other blocks do not work without theirs.
//
// Mailbox registers and command layout: kernel psp_v13_0.c, psp_gfx_if.h.
#pragma once

#include <bitset>
#include <cstdint>

#include "replay/sim/card.h"

namespace tg::amd {
struct PspCommand;
}

namespace tg::sim {

// Firmware types (kernel: psp_gfx_if.h, GFX_FW_TYPE_*).
enum FirmwareType : uint32_t {
  kFwCpMec = 4,
  kFwRlcG = 8,
  kFwSdma0 = 9,
  kFwSmu = 18,
  kFwSdmaTh0 = 71,
  kFwRs64Mec = 89,
};

class Psp {
 public:
  explicit Psp(Card& card);
  void Reset();

  bool sos_alive() const { return sos_alive_; }
  bool Loaded(FirmwareType type) const { return loaded_[type]; }
  // The graphics blocks run: their firmware was started by AUTOLOAD_RLC.
  bool gfx_started() const { return gfx_started_; }

 private:
  static constexpr uint32_t kMaxFirmware = 256;
  Register C2p(int number, uint32_t reset = 0);
  void Bootloader(uint32_t command);
  void RingControl(uint32_t command);
  void RingWritten(uint32_t wptr);
  void Frame(std::span<const uint8_t> bytes);
  // The status it answers with; more of the response goes into `buffer`.
  uint32_t Execute(const amd::PspCommand& command, std::span<uint8_t> buffer);

  Card& card_;
  Register command_, upload_, control_, wptr_, ring_lo_, ring_hi_, ring_size_, alive_;
  Register bootload_;  // RLC_RLCS_BOOTLOAD_STATUS
  bool sos_alive_ = false;
  bool ring_ = false;
  bool gfx_started_ = false;
  uint32_t rptr_ = 0;  // dwords
  std::bitset<kMaxFirmware> loaded_;
};

}  // namespace tg::sim
