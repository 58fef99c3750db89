// The interrupt ring as the client handled it: entries it read, and those it threw away unread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "decoder/model/access.h"
#include "schemas/amd/ih.h"

namespace tg::model {

struct Interrupt {
  Stamp at;  // the first read of its entry
  uint32_t ring_dword = 0;
  amd::IhEntry entry;
  amd::IhMeaning meaning;
};

class Ih {
 public:
  // Entries read in full; the first 256 and the latest 256.
  const std::vector<Interrupt>& interrupts() const { return first_; }
  std::vector<Interrupt> recent() const;
  uint64_t entries_read() const { return entries_read_; }
  uint64_t errors() const { return errors_; }  // entries that set the client's error state
  // Entries the read pointer jumped over: an error among them went unnoticed.
  uint64_t discarded() const { return discarded_; }
  Stamp last_discard() const { return last_discard_; }
  uint64_t overflows() const { return overflows_; }
  Stamp first_overflow() const { return first_overflow_; }

  // Rounds of "R WPTR, R RPTR, ...": the client waited for more than 200 ms.
  uint64_t handler_rounds() const { return handler_rounds_; }
  Stamp first_round() const { return first_round_; }  // of the latest run without work between
  Stamp last_round() const { return last_round_; }
  // "R WPTR, W RPTR": a synchronize that ended well.
  uint64_t drains() const { return drains_; }
  Stamp last_drain() const { return last_drain_; }

  std::optional<uint32_t> wptr_raw() const { return wptr_raw_; }
  std::optional<uint32_t> rptr_raw() const { return rptr_raw_; }
  uint64_t ring_base() const { return ring_base_; }  // VRAM offset
  uint64_t ring_size() const { return ring_size_; }

  // ---- for the device that feeds it ----
  void SetGc(amd::IpVersion gc) { gc_ = gc; }
  void SetRing(uint64_t vram_offset, uint64_t size);
  void OnRegister(const RegisterAccess& access);
  void OnVramRead(Stamp at, uint64_t offset, uint32_t value);
  void OnDoorbell() { round_open_ = false; }

 private:
  void AddEntry(Stamp at, uint32_t dword);

  amd::IpVersion gc_{11, 0, 0};
  uint64_t ring_base_ = 0x3000;
  uint64_t ring_size_ = 0x40000;
  std::optional<uint32_t> wptr_raw_, rptr_raw_;
  std::array<uint32_t, 8> partial_{};
  uint32_t partial_mask_ = 0;
  uint32_t partial_dword_ = 0;
  Stamp partial_at_;
  uint64_t read_since_rptr_ = 0;
  enum class Last : uint8_t { kOther, kWptr, kWptrRptr } last_ = Last::kOther;
  bool round_open_ = false;
  std::vector<Interrupt> first_;
  std::vector<Interrupt> recent_;
  size_t recent_next_ = 0;
  uint64_t entries_read_ = 0, errors_ = 0, discarded_ = 0, overflows_ = 0, handler_rounds_ = 0,
           drains_ = 0;
  Stamp last_discard_, first_overflow_, first_round_, last_round_, last_drain_;
};

}  // namespace tg::model
