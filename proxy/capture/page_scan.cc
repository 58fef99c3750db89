#include "proxy/capture/page_scan.h"

#include <algorithm>
#include <array>

#include "proxy/xxh3.h"

namespace tg::proxy {

void PageScan::Add(uint32_t region, uint64_t bytes) {
  const uint64_t pages = (bytes + kPage - 1) / kPage;
  if (pages == 0 || total_pages_ + pages > kMaxPages) return;
  total_pages_ += pages;
  regions_[region] = {.bytes = bytes, .hashes = std::vector<uint64_t>(pages)};
}

bool PageScan::ScanPage(uint32_t index, Region& region, uint64_t page, StoreWhy why) {
  std::array<uint8_t, kPage> bytes;
  const uint64_t offset = page * kPage;
  const size_t want = std::min<uint64_t>(kPage, region.bytes - offset);
  const size_t got = copy_(index, offset, std::span(bytes).first(want));
  if (got == 0) return false;
  uint64_t hash = XXH3_64bits(bytes.data(), got);
  hash += hash == 0;
  if (region.hashes[page] == hash) return false;
  region.hashes[page] = hash;
  if (mask_) mask_(index, offset, std::span(bytes).first(got));
  store_.Store(index, offset, std::span(bytes).first(got), why);
  return true;
}

void PageScan::ScanSmall(StoreWhy why) {
  for (auto& [index, region] : regions_) {
    if (region.bytes > kSmallRegion) continue;
    for (uint64_t page = 0; page < region.hashes.size(); ++page) ScanPage(index, region, page, why);
  }
}

bool PageScan::ScanSome(StoreWhy why, uint64_t pages, uint64_t changed) {
  while (pages > 0 && changed > 0) {
    auto at = regions_.lower_bound(next_region_);
    if (at == regions_.end()) {
      next_region_ = 0;
      next_page_ = 0;
      return true;
    }
    if (at->first != next_region_) next_page_ = 0;
    next_region_ = at->first;
    while (next_page_ < at->second.hashes.size() && pages > 0 && changed > 0) {
      --pages;
      if (ScanPage(at->first, at->second, next_page_++, why)) --changed;
    }
    if (next_page_ >= at->second.hashes.size()) {
      ++next_region_;
      next_page_ = 0;
    }
  }
  return false;
}

void PageScan::ScanAll(StoreWhy why) {
  for (auto& [index, region] : regions_) {
    for (uint64_t page = 0; page < region.hashes.size(); ++page) ScanPage(index, region, page, why);
  }
}

}  // namespace tg::proxy
