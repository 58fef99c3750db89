#include "decoder/model/sysmem.h"

namespace tg::model {
namespace {

constexpr size_t kMaxRefusals = 256;

}  // namespace

const Region* Sysmem::Find(uint32_t index) const {
  const auto found = regions_.find(index);
  return found == regions_.end() ? nullptr : &found->second;
}

Region* Sysmem::FindMutable(uint32_t index) {
  const auto found = regions_.find(index);
  return found == regions_.end() ? nullptr : &found->second;
}

uint64_t Sysmem::granted_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [index, region] : regions_) bytes += region.granted;
  return bytes;
}

uint64_t Sysmem::asked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [index, region] : regions_) bytes += region.asked;
  return bytes;
}

Region* Sysmem::Add(uint32_t index, uint64_t max_shadow, ShadowBudget* budget) {
  if (!regions_.contains(index) && regions_.size() >= kMaxRegions) return nullptr;
  Region& region = regions_[index];
  // The ranges it had, where no newer region took them over.
  for (const DmaRange& range : region.ranges) {
    const auto segment = segments_.find(range.address);
    if (segment != segments_.end() && segment->second.region == index) segments_.erase(segment);
  }
  region = Region{};
  region.index = index;
  region.shadow = Shadow(max_shadow, budget);
  return &region;
}

void Sysmem::SetRanges(Region& region, std::vector<DmaRange> ranges) {
  for (const DmaRange& range : ranges) {
    if (range.length == 0) continue;
    const uint64_t last =
        range.length - 1 > ~0ull - range.address ? ~0ull : range.address + (range.length - 1);
    segments_[range.address] = {last, region.index, range.region_offset};
  }
  region.ranges = std::move(ranges);
}

std::optional<Sysmem::Place> Sysmem::Locate(uint64_t dma_address) const {
  auto after = segments_.upper_bound(dma_address);
  if (after == segments_.begin()) return std::nullopt;
  --after;
  const Segment& segment = after->second;
  if (segment.last < dma_address) return std::nullopt;
  const Region* region = Find(segment.region);
  if (!region) return std::nullopt;
  const uint64_t into = dma_address - after->first;
  return Place{region, segment.region_offset + into, segment.last - dma_address + 1};
}

void Sysmem::Refuse(Refusal refusal) {
  if (refusals_.size() < kMaxRefusals) refusals_.push_back(std::move(refusal));
}

void Sysmem::Clear() {
  regions_.clear();
  segments_.clear();
}

void Sysmem::NoteCopy(uint64_t call, uint64_t after_call) {
  if (after_call == 0 || after_call > call) return;
  ++lag_.copies;
  if (call - after_call <= lag_.most_calls) return;
  lag_.most_calls = call - after_call;
  lag_.call = call;
}

}  // namespace tg::model
