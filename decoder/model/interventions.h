// What the proxy did to the traffic because it was told to: requests that its guard kept from the
// server (--read-only, --deny), faults that it injected (--inject), registers that it read itself
// (--autopsy). None of it is the client's or the device's doing, and the report says so.
//
// Equal ones are one entry. Bounded: at most kMaxEntries, further ones are only counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/trace/reader.h"
#include "schemas/wire/commands.h"

namespace tg::model {

struct Intervention {
  enum class Kind : uint8_t { kGuard, kInject, kAutopsy };
  Kind kind = Kind::kGuard;
  uint64_t first_seq = 0;
  uint64_t last_seq = 0;
  uint64_t first_ns = 0;
  uint64_t count = 0;
  wire::RequestHeader header;  // of the first
  std::string text;            // as the trace has it: "--deny MMIO_WRITE:bar=2"
  std::string detail;          // of the first: "the server said 0x10"; of autopsies the value
  uint64_t answered = 0;       // autopsies
};
std::string_view InterventionName(Intervention::Kind kind);  // "guard", "inject", "autopsy"

class Interventions {
 public:
  void Feed(const trace::Record& record);

  const std::vector<Intervention>& all() const { return entries_; }
  uint64_t total(Intervention::Kind kind) const { return totals_[static_cast<size_t>(kind)]; }
  // The first request or answer that was altered or kept, and so may be why things went as they
  // did; nullptr: everything the client saw was the server's own.
  const Intervention* first_disturbance() const;

  static constexpr size_t kMaxEntries = 500;

 private:
  void Add(Intervention::Kind kind, std::string_view text, uint64_t call, uint64_t time_ns,
           const wire::RequestHeader& header);

  std::vector<Intervention> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // text and target -> entry
  uint64_t totals_[3] = {};
  // The newest requests, by call number: an answer that was altered does not say what it answers.
  struct Asked {
    uint64_t call = 0;
    wire::RequestHeader header;
  };
  std::array<Asked, 256> asked_;
};

}  // namespace tg::model
