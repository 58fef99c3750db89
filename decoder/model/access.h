// What the device model tells those who watch it: accesses with their real target. Queues, diff and
// the live stall watch are built on this.
#pragma once

#include <cstdint>
#include <span>

#include "decoder/model/registers.h"
#include "decoder/model/types.h"

namespace tg::model {

// One access to a register. Reads are reported when their answer came.
struct RegisterAccess {
  Stamp at;                            // of the request
  const RegisterState* reg = nullptr;  // already updated; valid during the call
  uint32_t value = 0;
  bool write = false;
  Via via = Via::kDirect;
  uint64_t times = 1;  // more than one: a folded run of equal accesses, the last at `last`
  Stamp last;
  uint64_t latency_ns = 0;  // reads
};

enum class Space : uint8_t {
  kVram,    // offset: in VRAM
  kSysmem,  // offset: in region `index`
  kBar,     // any other BAR: offset in BAR `index`
};

// One access to memory. `data` may be shorter than `size` (the trace kept only the head) or empty.
struct MemoryAccess {
  Stamp at;
  Space space = Space::kVram;
  uint32_t index = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::span<const uint8_t> data;
  bool all_zero = false;
  bool write = false;
  bool snapshot = false;  // the proxy's copy of shared memory, not an access of the client
  Via via = Via::kDirect;
  uint64_t times = 1;
  Stamp last;
  uint64_t latency_ns = 0;  // reads
};

// A write to the doorbell BAR (8 bytes as the driver does it; `size` says).
struct DoorbellWrite {
  Stamp at;
  uint64_t offset = 0;  // byte offset in BAR2; index = offset / 8
  uint64_t value = 0;
  uint32_t size = 8;
  uint64_t times = 1;
  Stamp last;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnRegister(const RegisterAccess&) {}
  // A read that the proxy made (--autopsy): the value is the device's, the client did not ask.
  virtual void OnAutopsy(const RegisterAccess&) {}
  virtual void OnMemory(const MemoryAccess&) {}
  virtual void OnDoorbell(const DoorbellWrite&) {}
  // A new connection begins: what lived only as long as the old one is gone.
  virtual void OnConnect(Stamp) {}
};

}  // namespace tg::model
