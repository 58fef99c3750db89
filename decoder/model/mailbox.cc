#include "decoder/model/mailbox.h"

#include "schemas/amd/smu.h"

namespace tg::model {
namespace {

// When what a poll read was known: with the answer, not with the request.
template <typename Access>
Stamp AnswerTime(const Access& access) {
  return {access.last.call, access.last.time_ns + access.latency_ns};
}

}  // namespace

uint64_t Smu::unanswered() const {
  uint64_t count = 0;
  for (const auto* list : {&exchanges_.first(), &exchanges_.last()}) {
    for (const SmuExchange& e : *list) count += e.unanswered() ? 1 : 0;
  }
  return count;
}

bool Smu::OnRegister(const RegisterAccess& access) {
  const Role role = access.reg->role;
  const bool debug = role == Role::kSmuDebugMessage || role == Role::kSmuDebugArgument ||
                     role == Role::kSmuDebugResponse;
  switch (role) {
    case Role::kSmuArgument:
    case Role::kSmuDebugArgument:
      if (access.write) {
        argument_[debug] = access.value;
      } else if (SmuExchange* e = exchanges_.newest(); e && e->debug == debug) {
        e->result = access.value;
      }
      return false;
    case Role::kSmuMessage:
    case Role::kSmuDebugMessage: {
      if (!access.write) return false;
      SmuExchange e;
      e.sent = access.at;
      e.debug = debug;
      e.message = access.value;
      e.argument = argument_[debug];
      if (debug) {
        const std::string_view name = amd::SmuDebugMessageName(e.message);
        e.name = name.empty() ? "debug message " + std::to_string(e.message)
                              : "debug " + std::string(name);
        e.argument_text = std::to_string(e.argument);
      } else {
        e.name = amd::SmuMessageName(mp1_, e.message);
        e.argument_text = amd::SmuArgumentText(mp1_, e.message, e.argument);
      }
      const bool reset = debug ? e.message == amd::kSmuDebugMode1Reset
                               : e.name == "Mode1Reset" || e.name == "GfxDriverReset";
      exchanges_.Add(std::move(e));
      return reset;
    }
    case Role::kSmuResponse:
    case Role::kSmuDebugResponse:
      if (access.write) return false;
      if (SmuExchange* e = exchanges_.newest(); e && e->debug == debug) {
        e->polls += access.times;
        e->last_poll = access.last;
        // All ones are a failed read, not an answer.
        if (access.value != amd::kSmuNoAnswer && access.value != 0xFFFFFFFF) {
          if (!e->response) e->answered = AnswerTime(access);
          e->response = access.value;
        }
      }
      return false;
    default:
      return false;
  }
}

namespace {

// C2PMSG_64 after "create ring": ready, no error.
constexpr uint32_t kRingReadyMask = 0x8000FFFF;

}  // namespace

void Psp::OnRegister(const RegisterAccess& access) {
  const auto done = [&](PspExchange& e) {
    if (e.done) return;
    e.done = true;
    e.done_at = AnswerTime(access);
  };
  switch (access.reg->role) {
    case Role::kPspAlive:
      if (!access.write && access.value != 0xFFFFFFFF) {
        alive_ = access.value;
        PspExchange* e = exchanges_.newest();
        if (e && e->kind == PspExchange::Kind::kBootloader && !e->done) {
          e->polls += access.times;
          e->last_poll = access.last;
          if (access.value != 0) done(*e);
        }
      }
      return;
    case Role::kPspBootloader:
      if (access.write) {
        PspExchange e;
        e.kind = PspExchange::Kind::kBootloader;
        e.sent = access.at;
        e.text = amd::PspBootloaderName(access.value);
        e.image_size = last_upload_size_;
        last_upload_size_ = 0;
        exchanges_.Add(std::move(e));
      } else if (PspExchange* e = exchanges_.newest();
                 e && e->kind == PspExchange::Kind::kBootloader && !e->done) {
        e->polls += access.times;
        e->last_poll = access.last;
        if ((access.value & amd::kPspBootloaderReady) != 0 && access.value != 0xFFFFFFFF) done(*e);
      }
      return;
    case Role::kPspRingControl:
      if (access.write) {
        PspExchange e;
        e.kind = PspExchange::Kind::kRing;
        e.sent = access.at;
        e.text = access.value == amd::kPspRingDestroy    ? "destroy ring"
                 : access.value == amd::kPspRingCreateKm ? "create ring"
                                                         : amd::PspControlName(access.value);
        exchanges_.Add(std::move(e));
      } else if (PspExchange* e = exchanges_.newest();
                 e && e->kind == PspExchange::Kind::kRing && !e->done) {
        e->polls += access.times;
        e->last_poll = access.last;
        if ((access.value & kRingReadyMask) == amd::kPspBootloaderReady) done(*e);
      }
      return;
    case Role::kPspRingLo:
      if (access.write) ring_lo_ = access.value;
      break;
    case Role::kPspRingHi:
      if (access.write) ring_hi_ = access.value;
      break;
    case Role::kPspWptr: {
      if (!access.write) {
        wptr_ = access.value;
        return;
      }
      const uint32_t before = wptr_.value_or(access.value - amd::kPspFrameSize / 4);
      wptr_ = access.value;
      PspExchange e;
      e.kind = PspExchange::Kind::kCommand;
      e.sent = access.at;
      e.text = "command (frame not observed)";
      std::array<uint8_t, amd::kPspFrameSize> frame_bytes{};
      if (vram_.Read(ring_ + before * 4ull, frame_bytes)) {
        const auto frame = amd::DecodePspFrame(frame_bytes);
        e.fence = frame->fence_value;
        if (mc_base_ && frame->command_address >= *mc_base_ && frame->fence_address >= *mc_base_) {
          command_ = frame->command_address - *mc_base_;
          fence_ = frame->fence_address - *mc_base_;
        }
        std::array<uint8_t, 0x40> command_bytes{};
        if (vram_.Read(command_, command_bytes)) {
          const auto command = amd::DecodePspCommand(command_bytes);
          e.text = amd::DescribePspCommand(*command);
          if (command->id == amd::kPspLoadIpFw || command->id == amd::kPspLoadToc) {
            e.image_size = command->size;
          }
        } else {
          e.text = "command (not observed)";
        }
      }
      exchanges_.Add(std::move(e));
      return;
    }
    default:
      return;
  }
  if (ring_lo_ && ring_hi_ && mc_base_) {
    const uint64_t mc = *ring_lo_ | *ring_hi_ << 32;
    if (mc >= *mc_base_) ring_ = mc - *mc_base_;
  }
}

void Psp::OnVram(const MemoryAccess& access) {
  if (access.write) {
    if (access.offset == upload_ && access.size >= 16) {
      last_upload_size_ = access.size;
      uploads_ += access.times;
      uploaded_bytes_ += access.size * access.times;
    }
    return;
  }
  PspExchange* e = exchanges_.newest();
  if (!e || e->kind != PspExchange::Kind::kCommand) return;
  if (access.offset == fence_ && access.size == 4 && !e->done) {
    e->polls += access.times;
    e->last_poll = access.last;
    if (vram_.U32(fence_) == e->fence) {
      e->done = true;
      e->done_at = AnswerTime(access);
    }
  } else if (access.offset == command_ && access.data.size() >= amd::kPspResponseOffset + 0x14) {
    if (const auto command = amd::DecodePspCommand(access.data)) {
      e->status = command->status;
      if (command->id == amd::kPspLoadToc) e->tmr_size = command->tmr_size;
    }
  }
}

}  // namespace tg::model
