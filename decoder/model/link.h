// Signs that the card does not answer any more: registers that turn to all ones, reads that become
// slow. The transition is what matters: the last good read, the first bad one, what was written
// between.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/access.h"
#include "decoder/model/bars.h"

namespace tg::model {

struct PostedWrite {
  Stamp at;
  uint32_t bar = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t value = 0;  // its first 8 bytes
};

// A register whose answer turned to all ones.
struct AllOnes {
  uint64_t address = 0;
  uint8_t bar = 5;
  std::string name;  // of the register, or empty
  Stamp last_good;   // none: it was never read as anything else
  uint32_t last_good_value = 0;
  Stamp first_bad;
  Stamp last_bad;
  uint64_t count = 0;                       // all-ones reads
  uint64_t good_latency_ns = 0;             // of the last good read
  uint64_t bad_latency_ns = 0;              // of the first bad one
  std::vector<PostedWrite> writes_between;  // between the two, the latest 16
  uint64_t writes_between_total = 0;
  std::optional<Stamp> good_again;
};

enum class LinkVerdict : uint8_t {
  kUnknown,        // no all-ones read of a register
  kDeviceGone,     // configuration space and registers all ones
  kMemoryOff,      // registers all ones, and the command register has memory off: as expected
  kBarOrLink,      // registers all ones, configuration space answers: BAR decode or link problem
  kConfigUnknown,  // registers all ones, configuration space not read since
};
std::string_view LinkVerdictText(LinkVerdict verdict);

class Link {
 public:
  explicit Link(const Bars& bars) : bars_(bars) {}
  const std::vector<AllOnes>& transitions() const {
    return transitions_;
  }  // the first 64 registers
  const AllOnes* first() const { return transitions_.empty() ? nullptr : &transitions_.front(); }
  uint64_t all_ones_reads() const { return reads_; }
  LinkVerdict verdict() const;
  // The latest posted writes, oldest first (16).
  std::vector<PostedWrite> recent_writes() const;

  // ---- for the device that feeds it ----
  void OnWrite(const PostedWrite& write);
  void OnRegister(const RegisterAccess& access, const RegisterState& state, const Sample& before,
                  bool had_read, uint64_t latency_before_ns);

 private:
  static constexpr size_t kRecent = 16;
  const Bars& bars_;
  std::vector<AllOnes> transitions_;
  uint64_t reads_ = 0;
  std::array<PostedWrite, kRecent> recent_;
  uint64_t writes_ = 0;
};

}  // namespace tg::model
