// What the queue code needs of memory: where a GPU virtual address lies, and what was seen there.
//
// Implemented by the device model (offline, and beside the proxy), by the proxy's live mappings,
// and by tests.
#pragma once

#include <cstdint>
#include <span>

namespace tg::model {

struct Place {
  enum class Kind : uint8_t {
    kNotKnown,  // page tables not observed
    kUnmapped,  // the page tables say: nothing there
    kVram,      // `offset` is the VRAM address
    kSysmem,    // byte `offset` of region (or handle) `region`
    kDma,       // a system address that no known region covers: `offset` is the DMA address
  };
  Kind kind = Kind::kNotKnown;
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t run = 0;      // bytes from here on that lie there in one piece (0: not kVram, kSysmem)
  bool assumed = false;  // guessed, not translated (no page tables in the trace)

  bool readable() const { return kind == Kind::kVram || kind == Kind::kSysmem; }
  friend bool operator==(const Place&, const Place&) = default;
};

class QueueMemory {
 public:
  virtual ~QueueMemory() = default;
  virtual Place Locate(uint64_t va) const = 0;
  // Fills `out` with what was last seen there; false unless every byte was seen. `out` then holds
  // nothing of use.
  virtual bool ReadPlace(const Place& place, std::span<uint8_t> out) const = 0;

  // The same for a virtual address, across pages.
  bool Read(uint64_t va, std::span<uint8_t> out) const;
  bool Read32(uint64_t va, uint32_t& out) const;
  bool Read64(uint64_t va, uint64_t& out) const;
};

}  // namespace tg::model
