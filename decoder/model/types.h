// Words that all parts of the device model share.
#pragma once

#include <cstdint>
#include <string>

namespace tg::model {

// When something happened: the call's number in the trace, and nanoseconds since its start.
// Copied member by member on purpose: one 16-byte load of two values that were stored a moment ago
// waits until both stores have left the core, which cost a third of all time per record (see also
// the compile option in CMakeLists.txt).
struct Stamp {
  uint64_t call = 0;  // 0: never
  uint64_t time_ns = 0;

  constexpr Stamp() = default;
  constexpr Stamp(uint64_t call_number, uint64_t time) : call(call_number), time_ns(time) {}
  constexpr Stamp(const Stamp& other) : call(other.call), time_ns(other.time_ns) {}
  constexpr Stamp& operator=(const Stamp& other) {
    call = other.call;
    time_ns = other.time_ns;
    return *this;
  }
  constexpr explicit operator bool() const { return call != 0; }
  friend constexpr bool operator==(const Stamp&, const Stamp&) = default;
};

enum class Vendor : uint8_t { kUnknown, kAmd, kNvidia, kOther };

// How an access reached its target.
enum class Via : uint8_t {
  kDirect,      // the BAR itself
  kVramWindow,  // MM_INDEX / MM_DATA
  kRsmuWindow,  // RSMU_INDEX / RSMU_DATA
  kPcieWindow,  // PCIE_INDEX2 / PCIE_DATA2
};

// Something in the trace that a person should know of. `rule` is a short stable word.
struct Warning {
  std::string rule;
  uint64_t call = 0;
  std::string text;
};

}  // namespace tg::model
