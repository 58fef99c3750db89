#include "decoder/model/queue_setup.h"

#include "schemas/amd/mqd.h"
#include "schemas/amd/packet.h"

namespace tg::model {
namespace {

struct Suffix {
  std::string_view text;
  QueueReg reg;
};
constexpr Suffix kSdma[] = {
    {"RB_CNTL", QueueReg::kControl},
    {"RB_BASE", QueueReg::kBase},
    {"RB_BASE_HI", QueueReg::kBaseHi},
    {"RB_RPTR", QueueReg::kRptr},
    {"RB_RPTR_HI", QueueReg::kRptrHi},
    {"RB_WPTR", QueueReg::kWptr},
    {"RB_WPTR_HI", QueueReg::kWptrHi},
    {"RB_RPTR_ADDR_LO", QueueReg::kRptrAddr},
    {"RB_RPTR_ADDR_HI", QueueReg::kRptrAddrHi},
    {"RB_WPTR_POLL_ADDR_LO", QueueReg::kWptrAddr},
    {"RB_WPTR_POLL_ADDR_HI", QueueReg::kWptrAddrHi},
    {"DOORBELL", QueueReg::kDoorbell},
    {"DOORBELL_OFFSET", QueueReg::kDoorbellOffset},
};
constexpr Suffix kHqd[] = {
    {"PQ_CONTROL", QueueReg::kControl},
    {"PQ_BASE", QueueReg::kBase},
    {"PQ_BASE_HI", QueueReg::kBaseHi},
    {"PQ_RPTR", QueueReg::kRptr},
    {"PQ_WPTR_LO", QueueReg::kWptr},
    {"PQ_WPTR_HI", QueueReg::kWptrHi},
    {"PQ_RPTR_REPORT_ADDR", QueueReg::kRptrAddr},
    {"PQ_RPTR_REPORT_ADDR_HI", QueueReg::kRptrAddrHi},
    {"PQ_WPTR_POLL_ADDR", QueueReg::kWptrAddr},
    {"PQ_WPTR_POLL_ADDR_HI", QueueReg::kWptrAddrHi},
    {"PQ_DOORBELL_CONTROL", QueueReg::kDoorbellOffset},
    {"ACTIVE", QueueReg::kActive},
    {"DEQUEUE_REQUEST", QueueReg::kDequeue},
    {"AQL_CONTROL", QueueReg::kAqlControl},
};

bool Skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string_view WithoutPrefix(std::string_view name) {
  if (!Skip(name, "reg")) Skip(name, "mm");
  return name;
}

std::optional<uint32_t> SkipNumber(std::string_view& text) {
  uint32_t value = 0;
  size_t n = 0;
  while (n < text.size() && n < 3 && text[n] >= '0' && text[n] <= '9') {
    value = value * 10 + static_cast<uint32_t>(text[n++] - '0');
  }
  if (n == 0) return std::nullopt;
  text.remove_prefix(n);
  return value;
}

}  // namespace

std::optional<QueueRegister> ParseQueueRegister(std::string_view name, uint32_t instance) {
  name = WithoutPrefix(name);
  QueueRegister out;
  if (Skip(name, "CP_HQD_")) {
    out.sdma = false;
    out.engine = instance;
    for (const Suffix& suffix : kHqd) {
      if (suffix.text == name) {
        out.reg = suffix.reg;
        return out;
      }
    }
    return std::nullopt;
  }
  if (!Skip(name, "SDMA")) return std::nullopt;
  out.engine = SkipNumber(name).value_or(instance);
  if (!Skip(name, "_")) return std::nullopt;
  if (Skip(name, "QUEUE")) {
    const auto queue = SkipNumber(name);
    if (!queue) return std::nullopt;
    out.queue = *queue;
  } else if (!Skip(name, "GFX")) {
    return std::nullopt;
  }
  if (!Skip(name, "_")) return std::nullopt;
  for (const Suffix& suffix : kSdma) {
    if (suffix.text == name) {
      out.reg = suffix.reg;
      return out;
    }
  }
  return std::nullopt;
}

bool IsQueueSelect(std::string_view name) {
  return WithoutPrefix(name) == "GRBM_GFX_CNTL";
}

QueueSelect DecodeQueueSelect(uint32_t value) {
  return {.me = static_cast<uint8_t>(value >> 2 & 3),
          .pipe = static_cast<uint8_t>(value & 3),
          .queue = static_cast<uint8_t>(value >> 8 & 7),
          .vmid = static_cast<uint8_t>(value >> 4 & 15)};
}

std::optional<uint64_t> QueueSetup::ring_va() const {
  return base.known() ? std::optional<uint64_t>(base.value() << 8) : std::nullopt;
}

std::optional<uint64_t> QueueSetup::ring_bytes(bool sdma) const {
  if (!control) return std::nullopt;
  return sdma ? amd::RbRingBytes(*control >> 1 & 0x1f) : amd::PqRingBytes(*control);
}

std::optional<uint32_t> QueueSetup::doorbell_offset() const {
  if (!doorbell_control) return std::nullopt;
  return (*doorbell_control >> 2 & 0x3ffffff) * 4;
}

std::optional<QueueSetup> ParseMqd(std::span<const uint8_t> bytes) {
  if (bytes.size() < amd::kMqdAqlControl + 4 || amd::Dword(bytes, 0) != amd::kMqdHeader) {
    return std::nullopt;
  }
  const auto at = [&](uint32_t offset) { return amd::Dword(bytes, offset / 4); };
  const auto pair = [&](uint32_t offset) { return Halves{at(offset), at(offset + 4)}; };
  QueueSetup setup;
  setup.base = pair(amd::kMqdPqBase);
  setup.rptr_addr = pair(amd::kMqdRptrReportAddr);
  setup.wptr_addr = pair(amd::kMqdWptrPollAddr);
  setup.doorbell_control = at(amd::kMqdDoorbellControl);
  setup.control = at(amd::kMqdPqControl);
  setup.aql = at(amd::kMqdAqlControl) & 1;
  return setup;
}

}  // namespace tg::model
