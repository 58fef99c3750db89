// The word that the client reads over and over: one place, one value, nothing between. That is how
// a poll looks that never ends, on any card: a register of a chip this library has no tables of, or
// over TCP a word in shared memory (the two unbounded spins of the AMD driver; a queue that the
// card never wrote).
#pragma once

#include <array>
#include <cstdint>

#include "decoder/model/types.h"
#include "schemas/trace/reader.h"

namespace tg::explain {

struct ReadRun {
  wire::RequestHeader header;  // MMIO_READ or SYSMEM_READ of 1 to 8 bytes
  uint64_t value = 0;
  uint64_t reads = 0;
  model::Stamp first, last;
  uint64_t duration_ns() const { return last.time_ns - first.time_ns; }
};

class ReadWatch {
 public:
  void Feed(const trace::Record& record);
  // The run that the newest calls belong to; reads = 0: none.
  const ReadRun& run() const { return run_; }
  // Of up to four words that the newest calls read in turn, the one that has not changed for the
  // longest; reads = 0: none. Others may have: a clock beside it, say.
  ReadRun turn() const;
  // The newest run of SYSMEM_READs that ended after lasting for long; reads = 0: none.
  const ReadRun& ended() const { return ended_; }

 private:
  void OnRead(const wire::RequestHeader& header, uint64_t value, model::Stamp first,
              model::Stamp last, uint64_t times);

  void End();
  void OnTurn(const wire::RequestHeader& header, uint64_t value, model::Stamp first,
              model::Stamp last, uint64_t times);

  ReadRun run_;
  std::array<ReadRun, 4> words_;  // reads = 0: free
  ReadRun ended_;
  wire::RequestHeader asked_;  // the newest request
  uint64_t asked_call_ = 0;
  uint64_t asked_ns_ = 0;
};

}  // namespace tg::explain
