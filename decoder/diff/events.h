// A trace as a stream of events that two good runs of the same program share.
//
// What differs between good runs and is left out or made relative:
//   - left out: time, latency, process ids; the server's addresses of BARs; how often something was
//     polled (a run of reads of one register is one event with the last value); interrupt-ring
//     pointers and the handler's rounds (they depend on how long the host waited); reads of
//     page-table entries that give what was written;
//   - by region and offset: DMA addresses in page-table entries;
//   - up to a renaming that holds for the whole trace (token.h, renaming.h): addresses in VRAM and
//     of the GPU, numbers of regions, numbers on the timeline, doorbell values and places in rings,
//     kernel arguments; so that one submission more is one difference and not all later ones.
// Kept: order, sizes, values, status, refusals, BAR sizes, submissions with their packets, whether
// each was finished, interrupts, how the trace ends. Where records were lost stands a gap.
//
// With `strict` nothing is left out or made relative but time and latency.
//
// Memory: the device model's, and kMaxHeld events: a doorbell waits so long for its packets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoder/diff/event.h"
#include "decoder/diff/filter.h"
#include "decoder/diff/token.h"
#include "schemas/trace/reader.h"

namespace tg::diff {

inline constexpr size_t kMaxHeld = 4096;

struct StreamOptions {
  bool strict = false;
  Filter filter;
  // The other trace came over the other transport: shared memory shows on one side only.
  bool other_transport = false;
  // The other trace is of another chip: registers are compared by name.
  bool other_chip = false;
  // Submissions that were never finished: text, by the call number of their doorbell.
  std::unordered_map<uint64_t, std::string> unfinished;
};

class EventStream {
 public:
  EventStream(std::unique_ptr<trace::TraceReader> reader, StreamOptions options);
  ~EventStream();

  // The next event, false at the end.
  bool Next(Token& token);
  // The trace does not reach the end of the session (cut, killed).
  bool cut() const;
  const trace::TraceReader& reader() const;
  std::vector<std::string> unused_patterns() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::diff
