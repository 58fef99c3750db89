// Words that all parts of the device model share.
#pragma once

#include <cstdint>
#include <string>

namespace tg::model {

// When something happened: the call's number in the trace, and nanoseconds since its start.
struct Stamp {
  uint64_t call = 0;  // 0: never
  uint64_t time_ns = 0;
  explicit operator bool() const { return call != 0; }
  friend bool operator==(const Stamp&, const Stamp&) = default;
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
