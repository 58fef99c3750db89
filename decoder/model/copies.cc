#include "decoder/model/copies.h"

#include <algorithm>

namespace tg::model {
namespace {

constexpr size_t kMaxRates = 512;
constexpr size_t kMaxSizes = 4096;
constexpr size_t kMaxSlots = 256;
constexpr size_t kShownSizes = 16;

CopyDirection DirectionOf(const Place& from, const Place& to) {
  const auto host = [](const Place& p) {
    return p.kind == Place::Kind::kSysmem || p.kind == Place::Kind::kDma;
  };
  const auto vram = [](const Place& p) { return p.kind == Place::Kind::kVram; };
  if (host(from) && vram(to)) return CopyDirection::kHostToVram;
  if (vram(from) && host(to)) return CopyDirection::kVramToHost;
  if (vram(from) && vram(to)) return CopyDirection::kVramToVram;
  if (host(from) && host(to)) return CopyDirection::kHostToHost;
  return CopyDirection::kUnknown;
}

}  // namespace

std::string_view CopyDirectionName(CopyDirection direction) {
  static constexpr std::string_view kNames[] = {"sysmem_to_vram", "vram_to_sysmem", "vram_to_vram",
                                                "sysmem_to_sysmem", "unknown"};
  return kNames[static_cast<size_t>(direction)];
}

std::string_view CopyDirectionText(CopyDirection direction) {
  static constexpr std::string_view kTexts[] = {"sysmem -> VRAM", "VRAM -> sysmem", "VRAM -> VRAM",
                                                "sysmem -> sysmem", "not known"};
  return kTexts[static_cast<size_t>(direction)];
}

uint64_t Copies::copies() const {
  uint64_t n = 0;
  for (const CopyTotals& t : totals_) n += t.copies;
  return n;
}

uint64_t Copies::bytes() const {
  uint64_t n = 0;
  for (const CopyTotals& t : totals_) n += t.bytes;
  return n;
}

void Copies::OnRegion(uint32_t index, uint64_t bytes) {
  if (slots_fixed_ || bytes != kStagingBytes || candidates_.size() >= kMaxSlots) return;
  if (std::find(candidates_.begin(), candidates_.end(), index) == candidates_.end()) {
    candidates_.push_back(index);
  }
}

void Copies::OnConnect() {
  candidates_.clear();
  slots_.clear();
  slots_fixed_ = false;
  staging_.last_slot.reset();
  staging_.left_out.clear();
}

void Copies::FixSlots() {
  slots_fixed_ = true;
  std::sort(candidates_.begin(), candidates_.end());
  size_t best = 0, best_size = 0;
  for (size_t begin = 0, i = 0; i < candidates_.size(); ++i) {
    if (i > 0 && candidates_[i] != candidates_[i - 1] + 1) begin = i;
    if (i - begin + 1 > best_size) {
      best = begin;
      best_size = i - begin + 1;
    }
  }
  for (size_t i = 0; i < best_size; ++i) {
    slots_[candidates_[best + i]] = static_cast<uint32_t>(i);
  }
  staging_.slots = static_cast<uint32_t>(best_size);
  staging_.slot_bytes = best_size ? kStagingBytes : 0;
  staging_.uses_by_slot.resize(std::max(staging_.uses_by_slot.size(), best_size));
}

void Copies::UseSlot(uint32_t region, uint64_t offset, uint64_t call) {
  const auto found = slots_.find(region);
  if (found == slots_.end()) return;
  const uint32_t slot = found->second;
  const uint32_t slots = staging_.slots;
  ++staging_.uses;
  ++staging_.uses_by_slot[slot];
  if (offset != 0) {
    ++staging_.minor_offsets;
    staging_.last_minor_offset = offset;
  }
  for (StagingSkip& skip : staging_.left_out) ++skip.uses_since;
  std::erase_if(staging_.left_out, [&](const StagingSkip& skip) { return skip.slot == slot; });
  if (!staging_.last_slot || *staging_.last_slot >= slots) {
    staging_.last_slot = slot;
    return;
  }
  const uint32_t ahead = (slot + slots - *staging_.last_slot) % slots;
  // Behind the foremost: a piece that was submitted late.
  if (ahead == 0 || ahead > slots / 2) return;
  for (uint32_t i = 1; i < ahead; ++i) {
    const uint32_t passed = (*staging_.last_slot + i) % slots;
    const auto known = std::find_if(staging_.left_out.begin(), staging_.left_out.end(),
                                    [&](const StagingSkip& skip) { return skip.slot == passed; });
    if (known == staging_.left_out.end()) {
      staging_.left_out.push_back({.slot = passed, .call = call});
    }
  }
  staging_.last_slot = slot;
}

void Copies::Rate(CopyDirection direction, uint64_t bytes, uint64_t ns) {
  const uint64_t start = ns - ns % interval_ns_;
  if (rates_.empty() || rates_.back().t_ns < start) {
    if (rates_.size() >= kMaxRates && interval_ns_ < 1ull << 62) {
      // Intervals twice as long, half as many.
      interval_ns_ *= 2;
      std::vector<CopyRate> merged;
      for (const CopyRate& rate : rates_) {
        const uint64_t at = rate.t_ns - rate.t_ns % interval_ns_;
        if (merged.empty() || merged.back().t_ns != at) merged.push_back({.t_ns = at, .bytes = {}});
        for (size_t i = 0; i < kCopyDirections; ++i) merged.back().bytes[i] += rate.bytes[i];
      }
      rates_ = std::move(merged);
      return Rate(direction, bytes, ns);
    }
    if (rates_.size() < kMaxRates) rates_.push_back({.t_ns = start, .bytes = {}});
  }
  rates_.back().bytes[static_cast<size_t>(direction)] += bytes;
}

void Copies::OnPacket(const QueuePacketEvent& event) {
  if (event.visited.item->kind != amd::WalkItem::Kind::kPacket || !event.queue->sdma()) return;
  const auto copy = CopyOf(event.visited.item->packet);
  if (!copy) return;
  const Place from = memory_.Locate(copy->src);
  Count(from, memory_.Locate(copy->dst), copy->bytes, event);
  if (copy->dst2) Count(from, memory_.Locate(*copy->dst2), copy->bytes, event);
}

void Copies::Count(const Place& from, const Place& to, uint64_t bytes,
                   const QueuePacketEvent& event) {
  if (!slots_fixed_) FixSlots();
  const CopyDirection direction = DirectionOf(from, to);
  CopyTotals& totals = totals_[static_cast<size_t>(direction)];
  if (totals.copies == 0) {
    totals.first_call = event.call;
    totals.first_ns = event.ns;
    totals.smallest = bytes;
  }
  ++totals.copies;
  totals.bytes += bytes;
  totals.smallest = std::min(totals.smallest, bytes);
  totals.largest = std::max(totals.largest, bytes);
  totals.last_call = event.call;
  if (event.ns > totals.last_ns) {
    if (totals.last_ns != 0 && event.ns - totals.last_ns <= kCopyPause) {
      totals.busy_bytes += totals.last_bytes;
      totals.busy_ns += event.ns - totals.last_ns;
    }
    totals.last_ns = event.ns;
    totals.last_bytes = 0;
  }
  totals.last_bytes += bytes;
  Rate(direction, bytes, event.ns);
  if (sizes_.size() < kMaxSizes || sizes_.contains(bytes)) ++sizes_[bytes];
  if (direction == CopyDirection::kHostToVram && from.kind == Place::Kind::kSysmem) {
    UseSlot(from.region, from.offset, event.call);
  } else if (direction == CopyDirection::kVramToHost && slots_.contains(to.region)) {
    ++staging_.copies_out;
  }
}

std::vector<std::pair<uint64_t, uint64_t>> Copies::common_sizes() const {
  std::vector<std::pair<uint64_t, uint64_t>> all(sizes_.begin(), sizes_.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (all.size() > kShownSizes) all.resize(kShownSizes);
  return all;
}

}  // namespace tg::model
