// The host's memory as the card's DMA sees it: physically scattered pieces of the regions that the
// server allocated for its client. The memory itself belongs to the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tg::sim {

struct DmaSegment {
  uint64_t address = 0;  // DMA address, below 2^40
  uint64_t size = 0;
};

class HostMemory {
 public:
  // Gives DMA addresses to a region of `size` bytes (a multiple of 4 KiB) at `data`: at most
  // `max_segments` pieces, neighbours never adjacent, so that whoever takes a region for contiguous
  // is found out. Empty if the address space is used up.
  std::vector<DmaSegment> Map(uint8_t* data, uint64_t size, uint32_t max_segments);
  // Forgets every region: DMA there finds nobody from now on.
  void Clear() { segments_.clear(); }

  struct Run {
    uint8_t* data = nullptr;  // nullptr: no memory answers at this address
    uint64_t bytes = 0;       // up to the end of the segment
  };
  Run At(uint64_t address) const;
  size_t segments() const { return segments_.size(); }

 private:
  struct Entry {
    uint64_t address;
    uint64_t size;
    uint8_t* data;
  };
  std::vector<Entry> segments_;  // ascending addresses: new ones are always the highest
  uint64_t next_ = 0x1'0000'0000;
};

}  // namespace tg::sim
