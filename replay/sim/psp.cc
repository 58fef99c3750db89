#include "replay/sim/psp.h"

#include <algorithm>
#include <array>
#include <string>

#include "schemas/amd/psp.h"
#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr uint32_t kStatusBadParameters = 0xFFFF0006;
constexpr uint32_t kStatusNotSupported = 0xFFFF000A;

// Bootloader commands (kernel: psp_v13_0.c, enum psp_bootloader_cmd).
constexpr std::array<uint32_t, 8> kBootloaderCommands = {
    0x80000,              // key database
    0x10000000,           // SPL table
    0x10000,              // system driver
    0xB0000,              // SOC driver
    0xD0000,              // interface driver
    0xC0000,              // debug driver
    0xE0000,              // RAS driver
    amd::kPspLoadSosDrv,  // starts the sOS
};

constexpr uint32_t kMaxRing = 1 << 20;

constexpr uint32_t kDestroyTmr = 7;
// What the sOS says it needs for the trusted memory region.
constexpr uint32_t kTmrSize = 0x1300000;

}  // namespace

Register Psp::C2p(int number, uint32_t reset) {
  const bool mpasp = card_.Version(amd::kHwMp0).major >= 14;
  return card_.regs.Define(
      (mpasp ? "regMPASP_SMN_C2PMSG_" : "regMP0_SMN_C2PMSG_") + std::to_string(number), reset);
}

Psp::Psp(Card& card) : card_(card) {
  command_ = C2p(35, amd::kPspBootloaderReady);
  upload_ = C2p(36);
  control_ = C2p(64);
  wptr_ = C2p(67);
  ring_lo_ = C2p(69);
  ring_hi_ = C2p(70);
  ring_size_ = C2p(71);
  alive_ = C2p(81);
  bootload_ = card.regs.Define("regRLC_RLCS_BOOTLOAD_STATUS");
  card.regs.OnWrite(command_, [this](uint32_t value) { Bootloader(value); });
  card.regs.OnWrite(control_, [this](uint32_t value) { RingControl(value); });
  card.regs.OnWrite(wptr_, [this](uint32_t value) { RingWritten(value); });
}

void Psp::Reset() {
  sos_alive_ = ring_ = gfx_started_ = false;
  rptr_ = 0;
  loaded_.reset();
}

void Psp::Bootloader(uint32_t command) {
  command_.Set(0);
  if (card_.hangs.Strike(HangKind::kPspDead)) return;
  const bool known = std::find(kBootloaderCommands.begin(), kBootloaderCommands.end(), command) !=
                     kBootloaderCommands.end();
  const bool image = !card_.Mc(static_cast<uint64_t>(upload_.value()) << 20, 1).empty();
  card_.counters.psp_commands++;
  if (sos_alive_ || !known || !image) {
    card_.counters.psp_rejected++;
    command_.Set(amd::kPspBootloaderReady | (kStatusBadParameters & 0xffff));
    return;
  }
  command_.Set(amd::kPspBootloaderReady);
  if (command == amd::kPspLoadSosDrv) {
    sos_alive_ = true;
    alive_.Set(card_.asic.sos_version);
    control_.Set(amd::kPspBootloaderReady);
  }
}

void Psp::RingControl(uint32_t command) {
  control_.Set(0);
  if (!sos_alive_ || card_.hangs.Strike(HangKind::kPspDead)) return;
  switch (command) {
    case amd::kPspRingCreateKm: {
      const uint32_t size = ring_size_.value();
      const uint64_t base = static_cast<uint64_t>(ring_hi_.value()) << 32 | ring_lo_.value();
      ring_ = size >= amd::kPspFrameSize && size <= kMaxRing && size % amd::kPspFrameSize == 0 &&
              !card_.Mc(base, size).empty();
      rptr_ = 0;
      wptr_.Set(0);
      control_.Set(ring_ ? amd::kPspBootloaderReady
                         : amd::kPspBootloaderReady | (kStatusBadParameters & 0xffff));
      return;
    }
    case amd::kPspRingDestroy:
      ring_ = false;
      ring_size_.Set(0);
      control_.Set(amd::kPspBootloaderReady);
      return;
    default:
      control_.Set(amd::kPspBootloaderReady | (kStatusNotSupported & 0xffff));
  }
}

void Psp::RingWritten(uint32_t wptr) {
  if (!ring_) return;
  const uint64_t size = ring_size_.value();
  const uint64_t base = static_cast<uint64_t>(ring_hi_.value()) << 32 | ring_lo_.value();
  const uint64_t frames = size / amd::kPspFrameSize;
  // A pointer far ahead can name each frame of the ring once at most.
  const uint32_t ahead = wptr - rptr_;
  const uint64_t pending = std::min<uint64_t>(ahead / (amd::kPspFrameSize / 4), frames);
  for (uint64_t i = 0; i < pending; i++) {
    const auto frame = card_.Mc(base + rptr_ * 4ull % size, amd::kPspFrameSize);
    if (!frame.empty()) Frame(frame);
    rptr_ += amd::kPspFrameSize / 4;
  }
  rptr_ = wptr;
}

void Psp::Frame(std::span<const uint8_t> bytes) {
  const auto frame = amd::DecodePspFrame(bytes);
  if (!frame || card_.hangs.Strike(HangKind::kPspDead)) return;
  card_.counters.psp_commands++;
  const auto buffer = card_.Mc(frame->command_address, amd::kPspCommandSize);
  const auto command = amd::DecodePspCommand(buffer);
  if (!command) {
    card_.counters.psp_rejected++;
  } else {
    const uint32_t status = Execute(*command, buffer);
    if (status) card_.counters.psp_rejected++;
    StoreLe(&buffer[amd::kPspResponseOffset], status);
  }
  if (const auto word = card_.Mc(frame->fence_address, 4); !word.empty())
    StoreLe(word.data(), frame->fence_value);
}

uint32_t Psp::Execute(const amd::PspCommand& command, std::span<uint8_t> buffer) {
  const bool present = command.size != 0 && !card_.Mc(command.address, command.size).empty();
  switch (command.id) {
    case amd::kPspLoadIpFw:
      if (!present || command.fw_type >= kMaxFirmware) return kStatusBadParameters;
      loaded_.set(command.fw_type);
      return 0;
    case amd::kPspLoadToc:
      if (!present) return kStatusBadParameters;
      StoreLe(&buffer[amd::kPspResponseOffset + 0x10], kTmrSize);
      return 0;
    case amd::kPspSetupTmr:
      // Address and size 0: the region the boot firmware set up.
      return command.size == 0 || present ? 0 : kStatusBadParameters;
    case kDestroyTmr:
    case amd::kPspSpatialPart:
      return 0;
    case amd::kPspAutoloadRlc:
      if (!Loaded(kFwRlcG)) return kStatusBadParameters;
      gfx_started_ = true;
      for (const char* field :
           {"gfx_init_done", "rlc_gpm_iram_loaded", "rlc_gpm_iram_done", "bootload_complete"})
        bootload_.SetField(field, 1);
      return 0;
    default:
      return kStatusNotSupported;
  }
}

}  // namespace tg::sim
