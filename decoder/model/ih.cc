#include "decoder/model/ih.h"

#include <bit>

namespace tg::model {
namespace {

constexpr size_t kKeep = 256;

}  // namespace

std::vector<Interrupt> Ih::recent() const {
  std::vector<Interrupt> all;
  all.reserve(recent_.size());
  for (size_t i = 0; i < recent_.size(); ++i) {
    all.push_back(recent_[(recent_next_ + i) % recent_.size()]);
  }
  return all;
}

void Ih::SetRing(uint64_t vram_offset, uint64_t size) {
  ring_base_ = vram_offset;
  // A ring that is no power of two of dwords is none; keep what AM uses.
  if (size >= amd::kIhEntrySize && std::has_single_bit(size)) ring_size_ = size;
}

void Ih::AddEntry(Stamp at, uint32_t dword) {
  Interrupt interrupt;
  interrupt.at = at;
  interrupt.ring_dword = dword;
  interrupt.entry = amd::DecodeIhEntry(partial_);
  interrupt.meaning = amd::ExplainIhEntry(gc_, interrupt.entry);
  ++entries_read_;
  ++read_since_rptr_;
  if (interrupt.meaning.effect != amd::IhEffect::kIgnored) ++errors_;
  if (first_.size() < kKeep) {
    first_.push_back(std::move(interrupt));
  } else if (recent_.size() < kKeep) {
    recent_.push_back(std::move(interrupt));
  } else {
    recent_[recent_next_] = std::move(interrupt);
    recent_next_ = (recent_next_ + 1) % kKeep;
  }
}

void Ih::OnVramRead(Stamp at, uint64_t offset, uint32_t value) {
  if (offset < ring_base_ || offset - ring_base_ >= ring_size_ || offset % 4 != 0) return;
  const auto dword = static_cast<uint32_t>((offset - ring_base_) / 4);
  const uint32_t within = dword % amd::kIhEntryDwords;
  const uint32_t entry = dword - within;
  if (partial_mask_ == 0 || entry != partial_dword_) {
    partial_mask_ = 0;
    partial_dword_ = entry;
    partial_at_ = at;
  }
  partial_[within] = value;
  partial_mask_ |= 1u << within;
  if (partial_mask_ == 0xff) {
    partial_mask_ = 0;
    AddEntry(partial_at_, entry);
  }
}

void Ih::OnRegister(const RegisterAccess& access) {
  switch (access.reg->role) {
    case Role::kIhWptr:
      if (access.write) {
        wptr_raw_ = access.value;
        // Set up afresh: the read pointer that follows starts anew and jumps over nothing.
        if (access.value == 0) rptr_raw_.reset();
        return;
      }
      if (access.value == 0xFFFFFFFF) return;  // link.h deals with that
      wptr_raw_ = access.value;
      if (amd::DecodeIhWptr(access.value).overflow) {
        overflows_ += access.times;
        if (!first_overflow_) first_overflow_ = access.at;
      }
      if (last_ != Last::kWptrRptr) last_ = Last::kWptr;
      return;
    case Role::kIhRptr: {
      if (!access.write) {
        rptr_raw_ = access.value;
        if (last_ == Last::kWptr) {
          last_ = Last::kWptrRptr;
          if (!round_open_) first_round_ = access.at;
          round_open_ = true;
          handler_rounds_ += access.times;
          last_round_ = access.last;
        }
        return;
      }
      if (last_ == Last::kWptr) {
        drains_ += access.times;
        last_drain_ = access.last;
        round_open_ = false;
      }
      last_ = Last::kOther;
      // Raw values count dwords; see schemas/amd/ih.h.
      const uint32_t ring_dwords = static_cast<uint32_t>(ring_size_ / 4);
      if (rptr_raw_) {
        const uint32_t passed = (access.value - *rptr_raw_) % ring_dwords / amd::kIhEntryDwords;
        if (passed > read_since_rptr_) {
          discarded_ += passed - read_since_rptr_;
          last_discard_ = access.at;
        }
      }
      read_since_rptr_ = 0;
      rptr_raw_ = access.value;
      return;
    }
    default:
      return;
  }
}

}  // namespace tg::model
