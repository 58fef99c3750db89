// Dialogues with the security processor (PSP) and the power controller (SMU): what was asked, by
// name, and what came back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/access.h"
#include "decoder/model/shadow.h"
#include "schemas/amd/ip.h"
#include "schemas/amd/psp.h"

namespace tg::model {

// A list that keeps its first and its latest entries.
template <typename T, size_t kFirst = 512, size_t kLast = 512>
class Ends {
 public:
  T& Add(T item) {
    ++total_;
    if (first_.size() < kFirst) return first_.emplace_back(std::move(item));
    if (last_.size() == kLast) last_.erase(last_.begin(), last_.begin() + kLast / 2);
    return last_.emplace_back(std::move(item));
  }
  uint64_t total() const { return total_; }
  uint64_t dropped() const { return total_ - first_.size() - last_.size(); }
  const std::vector<T>& first() const { return first_; }
  const std::vector<T>& last() const { return last_; }
  T* newest() {
    if (!last_.empty()) return &last_.back();
    return first_.empty() ? nullptr : &first_.back();
  }
  const T* newest() const { return const_cast<Ends*>(this)->newest(); }

 private:
  std::vector<T> first_, last_;
  uint64_t total_ = 0;
};

struct SmuExchange {
  Stamp sent;
  bool debug = false;
  uint32_t message = 0;
  uint32_t argument = 0;
  std::string name;                  // "GetDpmFreqByIndex"
  std::string argument_text;         // "UCLK level 2"
  std::optional<uint32_t> response;  // the latest value polled that is not 0; none: no answer
  Stamp answered;
  std::optional<uint32_t> result;  // the argument register, read back
  uint64_t polls = 0;
  Stamp last_poll;
  bool ok() const { return response == 1u; }
  // Polled, and never answered in the trace.
  bool unanswered() const { return polls > 0 && !response; }
};

class Smu {
 public:
  const Ends<SmuExchange>& exchanges() const { return exchanges_; }
  uint64_t unanswered() const;

  // ---- for the device that feeds it ----
  void SetMp1(amd::IpVersion mp1) { mp1_ = mp1; }
  // True when it was a mode-1 reset message.
  bool OnRegister(const RegisterAccess& access);

 private:
  amd::IpVersion mp1_{13, 0, 0};
  uint32_t argument_[2] = {0, 0};  // [debug]
  Ends<SmuExchange> exchanges_;
};

struct PspExchange {
  enum class Kind : uint8_t { kBootloader, kRing, kCommand };
  Kind kind = Kind::kCommand;
  Stamp sent;
  std::string text;         // "LOAD_SOSDRV", "create ring", "LOAD_IP_FW RS64_MEC"
  uint64_t image_size = 0;  // bytes last uploaded, 0: none
  uint32_t fence = 0;       // kCommand: awaited value
  bool done = false;        // ready bit or fence seen
  Stamp done_at;
  std::optional<uint32_t> status;    // kCommand: from the response, 0 is success
  std::optional<uint32_t> tmr_size;  // LOAD_TOC
  uint64_t polls = 0;
  Stamp last_poll;
};

class Psp {
 public:
  explicit Psp(const Shadow& vram) : vram_(vram) {}
  const Ends<PspExchange>& exchanges() const { return exchanges_; }
  std::optional<uint32_t> alive() const { return alive_; }  // C2PMSG_81 as last read
  uint64_t uploads() const { return uploads_; }
  uint64_t uploaded_bytes() const { return uploaded_bytes_; }

  // ---- for the device that feeds it ----
  void SetMcBase(std::optional<uint64_t> mc_base) { mc_base_ = mc_base; }
  void OnRegister(const RegisterAccess& access);
  void OnVram(const MemoryAccess& access);

 private:
  const Shadow& vram_;
  std::optional<uint64_t> mc_base_;
  std::optional<uint32_t> alive_;
  uint64_t ring_ = 0x87000, command_ = 0x85000, fence_ = 0x86000, upload_ = 0x100000;
  std::optional<uint32_t> wptr_;
  std::optional<uint64_t> ring_lo_, ring_hi_;
  uint64_t last_upload_size_ = 0;
  uint64_t uploads_ = 0, uploaded_bytes_ = 0;
  Ends<PspExchange> exchanges_;
};

}  // namespace tg::model
