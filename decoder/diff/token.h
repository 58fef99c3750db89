// What alignment knows of an event: what must be equal, and what must only be equal up to a
// renaming that holds for the whole trace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tg::diff {

struct Event;

// A number that two good runs need not share, such as a place on the timeline or in a ring.
// `cls` says what it is a number of: its kind in the upper byte, which one in the others.
struct Soft {
  enum Kind : uint8_t {
    kVram = 1,  // an offset in VRAM beyond the driver's own area
    kVa,        // an address of the GPU's address space
    kRegion,    // a region of shared memory, numbered in the order of the trace
    kArgument,  // an address handed to a kernel in a register
    kPlace,     // an offset in a region: equal or not
    kStaging,   // a staging buffer: one of N (in the low bits), used in turn
    kDmaPage,   // an address of host memory that no region explains: any two-way mapping
    kFirstCounter,
    kDoorbell = kFirstCounter,  // value written to one doorbell
    kTimeline,                  // value of one signal
    kRing,                      // a place in one ring
    kWord,                      // value of one small word in shared memory
  };
  uint64_t cls = 0;
  uint64_t value = 0;

  static constexpr uint64_t Class(Kind kind, uint64_t which = 0) {
    return static_cast<uint64_t>(kind) << 56 | (which & 0x00ffffffffffffffull);
  }
  Kind kind() const { return static_cast<Kind>(cls >> 56); }
  uint64_t which() const { return cls & 0x00ffffffffffffffull; }
  // Counters go their own way each; addresses of all kinds shift together when something more is
  // allocated.
  bool counter() const { return kind() >= kFirstCounter; }
};

// One packet that a doorbell announced.
struct Part {
  uint64_t fixed = 0;
  bool broken = false;  // bytes that are no packet
  std::vector<Soft> soft;
};
// All of them, and the queue they belong to.
struct Parts {
  uint64_t channel = 0;
  bool known = false;  // false: the ring's content was not observed
  uint64_t bytes = 0;  // of the ring
  std::vector<Part> list;
};

struct Token {
  uint64_t key = 0;    // what was accessed and how
  uint64_t value = 0;  // what was written or read
  uint8_t softs = 0;
  bool gap = false;       // not an event: records were lost here
  bool solo = false;      // a remark on the trace rather than an access: a difference by itself
  bool any_host = false;  // leads to host memory of a region that the trace does not tell
  bool connect = false;   // a new connection: host memory is mapped anew
  std::array<Soft, 3> soft;
  std::shared_ptr<const std::vector<Soft>> more;
  std::shared_ptr<const Parts> parts;
  std::shared_ptr<const Event> event;  // the caller's own

  void Add(Soft one) { soft[softs++] = one; }
  std::span<const Soft> few() const { return {soft.data(), softs}; }
  bool plain() const { return softs == 0 && !more && !parts && !connect; }
  bool SameFixed(const Token& other) const {
    return key == other.key && value == other.value && !gap && !other.gap;
  }
};

}  // namespace tg::diff
