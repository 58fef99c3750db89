// A trace as a stream of events that two good runs of the same program share.
//
// What differs between good runs and is left out or made relative:
//   time, latency, process ids; the server's addresses of BARs; how often something was polled (a
//   run of reads of one register is one event with the last value); interrupt-ring pointers and the
//   handler's rounds (they depend on how long the host waited); reads of page-table entries;
//   DMA addresses (a page-table entry counts by region and offset, regions by their order); numbers
//   on the timeline, doorbell values and places in rings and kernel arguments (by their distance
//   from the one before, so that one submission more is one difference and not all later ones).
// Kept: order, sizes, values, status, refusals, BAR sizes, submissions, how the trace ends.
//
// With `strict` nothing is left out or made relative but time and latency.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/explain/observation.h"
#include "decoder/model/boot.h"
#include "schemas/trace/reader.h"

namespace tg::diff {

struct Event {
  enum class Kind : uint8_t {
    kCall,    // a request that is no access: MAP_BAR, RESET, MAP_SYSMEM_FD, ...
    kConfig,  // PCI configuration space
    kRegister,
    kVram,       // a block written to or read from VRAM
    kPageTable,  // entries of page tables, a run of them as one
    kSysmem,     // SYSMEM_READ and _WRITE (TCP)
    kBar,        // any other BAR
    kDoorbell,
    kPacket,  // a packet of a queue
    kInterrupt,
    kEnd,
  };
  Kind kind = Kind::kCall;
  uint64_t key = 0;  // see Token
  uint64_t hash = 0;
  uint64_t seq = 0;
  uint64_t last_seq = 0;  // of a run
  uint64_t time_ns = 0;
  model::Phase phase = model::Phase::kConnect;
  int bar = -1;
  bool write = false;
  std::string what;   // "regSCRATCH_REG7", "SDMA0 COPY_LINEAR"
  std::string value;  // as shown: "= 0xa0000008"
};
std::string_view EventKindName(Event::Kind kind);

struct Filter {
  std::vector<std::string> only;  // globs over `what`, phase names, "bar5", command names
  std::vector<std::string> ignore;
  bool Takes(const Event& event) const;
};

class EventStream {
 public:
  EventStream(std::unique_ptr<trace::TraceReader> reader, bool strict, Filter filter);
  ~EventStream();

  // The next event, or nothing at the end.
  std::optional<Event> Next();
  // After the end: what the whole trace says.
  const explain::Observation& observation() const;
  explain::Observation::File file() const;
  // The trace does not reach the end of the session (cut, killed, lost records).
  bool incomplete() const;
  const trace::TraceReader& reader() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::diff
