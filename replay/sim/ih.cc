#include "replay/sim/ih.h"

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr uint32_t kEntryBytes = 32;
constexpr uint32_t kOverflow = 1;
constexpr uint32_t kOffsetMask = 0x3fffc;
constexpr uint32_t kOverflowClear = 1u << 31;

}  // namespace

Ih::Ih(Card& card) : card_(card) {
  RegisterFile& regs = card.regs;
  base_ = regs.Define("regIH_RB_BASE");
  base_hi_ = regs.Define("regIH_RB_BASE_HI");
  cntl_ = regs.Define("regIH_RB_CNTL");
  wptr_ = regs.Define("regIH_RB_WPTR");
  rptr_ = regs.Define("regIH_RB_RPTR");
  regs.OnWrite(cntl_, [this](uint32_t value) {
    if (value & kOverflowClear) wptr_.Set(wptr_.value() & ~kOverflow);
  });
  // Ring 1 takes the overflow of storms; nothing here sends any.
  for (const char* name : {"regIH_RB_BASE_RING1", "regIH_RB_BASE_HI_RING1", "regIH_RB_CNTL_RING1",
                           "regIH_RB_WPTR_RING1", "regIH_RB_RPTR_RING1"})
    regs.Define(name);
}

uint64_t Ih::RingBytes() const {
  return 4ull << cntl_.Field("rb_size");
}

void Ih::Push(const IhEntry& entry) {
  const uint64_t size = RingBytes();
  const uint64_t ring = (static_cast<uint64_t>(base_hi_.value() & 0xff) << 32 | base_.value()) << 8;
  uint32_t at = wptr_.value() & kOffsetMask;
  const bool enabled = cntl_.Field("rb_enable") && size >= kEntryBytes && at < size;
  const auto slot = enabled ? card_.Mc(ring + at, kEntryBytes) : std::span<uint8_t>();
  if (slot.empty()) {
    card_.counters.interrupts_dropped++;
    return;
  }
  const uint64_t now = GpuClock();
  StoreLe<uint32_t>(&slot[0], static_cast<uint32_t>(entry.client) |
                                  static_cast<uint32_t>(entry.source) << 8 |
                                  static_cast<uint32_t>(entry.ring) << 16 |
                                  static_cast<uint32_t>(entry.vmid & 0xf) << 24);
  StoreLe<uint32_t>(&slot[4], static_cast<uint32_t>(now));
  StoreLe<uint32_t>(&slot[8], static_cast<uint32_t>(now >> 32) & 0xffff);
  StoreLe<uint32_t>(&slot[12], 0);
  for (size_t i = 0; i < entry.context.size(); i++) StoreLe(&slot[16 + 4 * i], entry.context[i]);
  card_.counters.interrupts++;

  at = static_cast<uint32_t>((at + kEntryBytes) & (size - 1)) & kOffsetMask;
  const bool full = at == (rptr_.value() & kOffsetMask);
  const uint32_t overflow = full && cntl_.Field("wptr_overflow_enable") ? kOverflow : 0;
  wptr_.Set(at | (wptr_.value() & kOverflow) | overflow);
}

}  // namespace tg::sim
