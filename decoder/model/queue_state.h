// Where a queue stands now: what is outstanding, which packet the GPU is at, what that one waits
// for, and which fence is missing.
//
// How the place is found (sdma-packets and pm4-packets, "reading a stuck ring"): the read pointer
// says about where; it may lag or lead by a packet (SDMA) or by a block of prefetch (PM4). What can
// be trusted are the signals: the first submission whose last signal memory has not reached is the
// one that is stuck, and among its packets the first wait that does not hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/queues.h"

namespace tg::model {

struct QueueItem {
  uint64_t position = 0;  // bytes, monotonic (depth 0); within the buffer (depth > 0)
  std::optional<uint64_t> ring_offset;
  uint64_t va = 0;
  uint32_t depth = 0;
  uint64_t size = 0;
  amd::WalkItem::Kind kind = amd::WalkItem::Kind::kPacket;
  amd::DecodedPacket packet;       // without `raw`
  uint64_t submission = 0;         // number; 0: not known
  bool read = false;               // lies before the read pointer
  bool here = false;               // the read pointer stands at it
  std::optional<uint64_t> memory;  // waits and signals: what the word holds; none: not observed
  bool holds = false;              // wait satisfied, or signal's value reached
  std::optional<ReachedBuffer::State> buffer;  // INDIRECT: what became of its buffer
};

struct QueueStuck {
  std::string op;        // "POLL_REGMEM"
  std::string text;      // "POLL_REGMEM [0x80001000] >= 397"
  std::string wants;     // "[0x80001000] >= 397", "kernel to finish", ...
  std::string has;       // "195"; empty: not observed, or nothing to compare
  std::string producer;  // who is to write what it waits for
  bool is_wait = false;
  bool satisfied = false;  // a wait that holds in memory and still stands there
  std::optional<uint64_t> ring_offset;
};

// The first signal that the GPU has still to give.
struct MissingFence {
  FenceRef fence;
  std::optional<uint64_t> memory;
  uint64_t submission = 0;
  // Memory has the value all the same: after a hang the client sets its timeline to "all done".
  bool forced = false;
};

struct QueueState {
  enum class Kind : uint8_t {
    kUnused,      // no doorbell in the trace
    kNoPointers,  // doorbells, but nobody read the pointers
    kIdle,        // all read, all signals seen
    kBusy,        // packets left
    kNoFence,     // all read, but the last signal was not seen
  };
  const Queue* queue = nullptr;
  Kind kind = Kind::kUnused;
  std::optional<uint64_t> rptr, wptr;  // bytes, monotonic
  PointerSeen::Source rptr_source = PointerSeen::Source::kNone;
  uint64_t rptr_call = 0;
  bool rptr_older = false;  // the client read it before the last doorbell: it may be further by now
  std::optional<uint64_t> outstanding_bytes;
  std::optional<uint32_t> outstanding_packets;  // none: ring content not observed
  bool ring_observed = false;
  std::vector<QueueItem> items;  // the window; see StateOptions
  size_t items_left_out = 0;
  std::optional<QueueStuck> stuck;
  std::optional<MissingFence> missing;  // of the oldest unfinished submission
  bool overrun = false;
  std::vector<std::string> notes;
  std::string
      headline;  // one line: "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; ..."
  bool outstanding() const { return kind == Kind::kBusy || kind == Kind::kNoFence; }
};

struct StateOptions {
  size_t max_items = 512;                 // stored; counting goes on
  uint32_t packets_before = 2;            // ring packets shown before the read pointer
  std::optional<uint32_t> packets_after;  // from the read pointer on; none: all
  bool into_buffers = true;
};

QueueState StateOf(const Queues& queues, size_t index, const StateOptions& options = {});

}  // namespace tg::model
