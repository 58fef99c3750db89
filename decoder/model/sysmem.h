// Host memory shared with the card: MAP_SYSMEM_FD regions (Unix socket) and MAP_SYSMEM handles
// (TCP), their DMA addresses, and what is known of their content.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/shadow.h"
#include "decoder/model/types.h"

namespace tg::model {

struct DmaRange {
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t region_offset = 0;
};

struct Region {
  uint32_t index = 0;  // as the server gave it; for TCP the handle
  uint32_t connection = 0;
  uint64_t asked = 0;
  uint64_t granted = 0;
  bool by_descriptor = false;
  Stamp mapped;
  std::vector<DmaRange> ranges;  // empty: addresses not observed
  std::string problem;           // why the proxy could not look into it
  Shadow shadow;
  uint64_t snapshots = 0;
  Stamp last_snapshot;
};

class Sysmem {
 public:
  const Region* Find(uint32_t index) const;
  // By index; regions of earlier connections are gone (the server frees them on disconnect), except
  // the newest of each index.
  const std::map<uint32_t, Region>& regions() const { return regions_; }
  uint64_t granted_bytes() const;
  uint64_t asked_bytes() const;
  // Where a DMA address lies.
  struct Place {
    const Region* region = nullptr;
    uint64_t offset = 0;
    uint64_t contiguous = 0;  // bytes from here to the end of the range
  };
  std::optional<Place> Locate(uint64_t dma_address) const;
  // How many calls the proxy's copies came behind what made it look.
  struct Lag {
    uint64_t copies = 0;  // that tell
    uint64_t most_calls = 0;
    uint64_t call = 0;  // at which it was that many
  };
  const Lag& lag() const { return lag_; }
  struct Refusal {
    Stamp at;
    uint64_t asked = 0;
    std::string text;
  };
  const std::vector<Refusal>& refusals() const { return refusals_; }

  // ---- for the device that feeds it ----
  Region* Add(uint32_t index, uint64_t max_shadow, ShadowBudget* budget = nullptr);
  Region* FindMutable(uint32_t index);
  template <typename F>
  void ForEachShadow(F&& f) {
    for (auto& [index, region] : regions_) f(region.shadow);
  }
  void SetRanges(Region& region, std::vector<DmaRange> ranges);
  void Refuse(Refusal refusal);
  void NoteCopy(uint64_t call, uint64_t after_call);
  void Clear();

 private:
  static constexpr size_t kMaxRegions = 1u << 16;
  std::map<uint32_t, Region> regions_;
  struct Segment {
    uint64_t last;  // inclusive
    uint32_t region;
    uint64_t region_offset;
  };
  std::map<uint64_t, Segment> segments_;  // by first DMA address
  std::vector<Refusal> refusals_;
  Lag lag_;
};

}  // namespace tg::model
