// The two notes that tinygrad's AM driver leaves for its successor in scratch registers.
//
// SCRATCH_REG7 = 0xA00000NN: "AM set this card up", NN the version of the state it leaves. Equal to
// the driver's own version: partial boot is possible. SCRATCH_REG6: not zero when the session that
// wrote it did not end cleanly. From tinygrad's history, runtime/support/am/amdev.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tg::amd {

inline constexpr uint32_t kAmVersionPrefix = 0xA0000000;
inline constexpr uint32_t kAmVersionCurrent = 0xA0000008;

struct AmVersion {
  uint32_t value;
  std::string_view since;   // date of the commit, "2026-01-26"
  std::string_view commit;  // in tinygrad
  std::string_view change;  // what made the state incompatible
};
std::span<const AmVersion> AmVersions();
const AmVersion* FindAmVersion(uint32_t reg7);

// What SCRATCH_REG7 says.
enum class Reg7Kind : uint8_t {
  kCurrent,    // the version this decoder knows as current
  kOlder,      // an older AM driver left the card: the current one boots it in full
  kUnknownAm,  // 0xA00000NN with a version newer than the table
  kForeign,    // something else: never set up by AM, or another driver's value
  kZero,       // nobody wrote it since power-on
  kAllOnes,    // not a value: the read failed (link or BAR problem)
};
Reg7Kind ClassifyReg7(uint32_t reg7);
// "AM since 2026-01-26", "older AM left this state (0xa0000007, 2025-12-22)", ...
std::string DescribeReg7(uint32_t reg7);

// SCRATCH_REG6 exists from version 7 (2026-01-11) on; since 2026-01-27 the closing write carries
// the error state instead of always 0.
std::string DescribeReg6(uint32_t reg7, uint32_t reg6);

}  // namespace tg::amd
