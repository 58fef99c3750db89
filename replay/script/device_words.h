// Which words of shared memory the device writes, and what each doorbell announced: read from the
// packets in the recorded rings.
//
// A copy of shared memory taken at a doorbell shows the client's words (ring, write pointer,
// staging data) beside the device's (fences, read pointers, data copied out). Who plays the client
// must store the former and must not touch the latter, or the device's own work would seem done
// before it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replay/script/ranges.h"
#include "schemas/trace/reader.h"

namespace tg::replay {

// A word in a region that a packet signals.
struct FencePlace {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t value = 0;
  uint32_t bytes = 4;
};

// A doorbell and the packets it announced.
struct Bell {
  uint64_t call = 0;
  std::string queue;
  uint64_t value = 0;
  bool observed = false;  // the ring bytes are in the trace
  bool retired = false;   // its last fence was seen written
  // The recording saw a stall on it that only a new set-up of a queue ended, or nothing: the device
  // hung on it, or on something before it.
  bool stuck = false;
  // The recording saw a stall on it that ended by itself: its work was done by this call. 0: no
  // stall.
  uint64_t slow_until = 0;
  std::vector<FencePlace> fences;
  // Where the client leaves the queue's write pointer for the device: the last word it stores
  // before it rings, and the last that the proxy copies.
  struct Pointer {
    uint32_t region = 0;
    uint64_t offset = 0;
  };
  std::optional<Pointer> wptr;
};

class DeviceWords {
 public:
  // Reads the trace to its end.
  static DeviceWords Read(trace::TraceReader& reader);

  // Does the device write some of [offset, offset + size)? Regions are numbered per connection;
  // `session` counts connections from 0.
  bool Owns(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) const;
  // The same for the words that tell how far it got: fences and read pointers.
  bool Signals(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) const;
  // nullptr: that call is no doorbell of a known queue.
  const Bell* Find(uint64_t call) const;
  const std::map<uint64_t, Bell>& bells() const { return bells_; }
  size_t ranges() const;

 private:
  friend class DeviceWordsReader;
  using Place = std::pair<uint32_t, uint32_t>;  // session, region

  std::map<Place, RangeSet> ranges_, signals_;
  std::map<uint64_t, Bell> bells_;
};

}  // namespace tg::replay
