// Is this the recorded request? And when not, where do they part?
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "replay/script/call.h"
#include "replay/serve/answer.h"

namespace tg::replay {

// Pages that the client's words name here, against those it named in the recording. A page keeps
// its partner, both ways: an address that does not follow is a difference. Only whole 8-byte words
// that look like addresses take part (page-table entries, packets); everything else, and every
// 4-byte register value, must be equal.
class AddressMap {
 public:
  // True if `now` can stand for `recorded`; remembers the pair if `commit`.
  bool Match(uint64_t recorded, uint64_t now, bool commit);
  size_t size() const { return forward_.size(); }

 private:
  static constexpr size_t kMaxPairs = 1u << 20;
  std::unordered_map<uint64_t, uint64_t> forward_, backward_;
};

// Same bytes; by hash where the trace kept no more.
bool SamePayload(const Bytes& recorded, const Received& received);
// Same size, and words that differ are mapped addresses.
bool SamePayload(const Bytes& recorded, const Received& received, AddressMap& addresses);

// "offset is 0x10, recorded 0x14"; empty when nothing differs.
std::string DescribeDifference(const Call& recorded, const Received& received);

}  // namespace tg::replay
