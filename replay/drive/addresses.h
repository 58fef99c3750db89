// DMA addresses of the recording against those of the server that is driven.
//
// The client learns where its shared memory lies for the device and writes those addresses into the
// page tables. On another machine (or boot) the same region lies elsewhere: recorded page-table
// entries would let the device write into memory that is somebody else's.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "replay/script/call.h"

namespace tg::replay {

class AddressRewriter {
 public:
  static constexpr uint64_t kPage = 4096;

  // The pages of one region, in order, there and here. Lists of other lengths are cut to the
  // shorter.
  void Add(const std::vector<DmaRange>& recorded, const std::vector<DmaRange>& live);
  void AddPages(std::span<const uint64_t> recorded, std::span<const uint64_t> live);
  bool empty() const { return pages_.empty(); }

  // Replaces the address in every 8-byte word of `payload` that reads as a page-table entry for
  // host memory (VALID and SYSTEM set) with a recorded page. Returns the number of words changed.
  size_t Rewrite(std::span<uint8_t> payload) const;

 private:
  std::unordered_map<uint64_t, uint64_t> pages_;  // only those that differ
};

}  // namespace tg::replay
