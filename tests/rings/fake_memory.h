// Regions of memory mapped at virtual addresses, with every byte known or not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "decoder/model/queue_memory.h"

namespace tg::test {

class FakeMemory : public model::QueueMemory {
 public:
  void Map(uint64_t va, uint32_t region, uint64_t size) {
    regions_[region] = {va, std::vector<uint8_t>(size), std::vector<bool>(size)};
  }
  void Write(uint32_t region, uint64_t offset, const std::vector<uint8_t>& bytes) {
    Region& r = regions_.at(region);
    for (size_t i = 0; i < bytes.size(); ++i) {
      r.bytes.at(offset + i) = bytes[i];
      r.known.at(offset + i) = true;
    }
  }
  void Write64(uint32_t region, uint64_t offset, uint64_t value) {
    std::vector<uint8_t> bytes(8);
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    Write(region, offset, bytes);
  }
  void Forget(uint32_t region) {
    std::fill(regions_.at(region).known.begin(), regions_.at(region).known.end(), false);
  }

  model::Place Locate(uint64_t va) const override {
    model::Place place;
    for (const auto& [index, r] : regions_) {
      if (va < r.va || va >= r.va + r.bytes.size()) continue;
      place.kind = model::Place::Kind::kSysmem;
      place.region = index;
      place.offset = va - r.va;
      // In pages, as real mappings are.
      place.run = std::min<uint64_t>(4096 - place.offset % 4096, r.bytes.size() - place.offset);
    }
    return place;
  }
  bool ReadPlace(const model::Place& place, std::span<uint8_t> out) const override {
    const auto found = regions_.find(place.region);
    if (found == regions_.end()) return false;
    const Region& r = found->second;
    if (place.offset + out.size() > r.bytes.size()) return false;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!r.known[place.offset + i]) return false;
      out[i] = r.bytes[place.offset + i];
    }
    return true;
  }

 private:
  struct Region {
    uint64_t va = 0;
    std::vector<uint8_t> bytes;
    std::vector<bool> known;
  };
  std::map<uint32_t, Region> regions_;
};

}  // namespace tg::test
