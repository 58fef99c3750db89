// Finds changed pages by their hashes, where nothing is known of what lies in them. Work per call
// is limited; the scan goes round.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "proxy/capture/store.h"

namespace tg::proxy {

class PageScan {
 public:
  using CopyFn = std::function<size_t(uint32_t region, uint64_t offset, std::span<uint8_t> to)>;
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSmallRegion = 64 * 1024;
  static constexpr uint64_t kMaxPages = 4u
                                        << 20;  // 16 GiB of regions; further ones are not scanned

  // May change what is stored of a page (not what it is recognised by).
  using MaskFn = std::function<void(uint32_t region, uint64_t offset, std::span<uint8_t> page)>;

  PageScan(CopyFn copy, ChangeStore& store, MaskFn mask = nullptr)
      : copy_(std::move(copy)), store_(store), mask_(std::move(mask)) {}

  void Add(uint32_t region, uint64_t bytes);
  void ScanSmall(StoreWhy why);
  // Goes on where the last call stopped; at most `pages` pages are read and `changed` of them
  // stored. True when it came round.
  bool ScanSome(StoreWhy why, uint64_t pages, uint64_t changed);
  void ScanAll(StoreWhy why);

 private:
  struct Region {
    uint64_t bytes = 0;
    std::vector<uint64_t> hashes;  // by page; 0: never stored
  };
  // True if the page had changed and was stored.
  bool ScanPage(uint32_t index, Region& region, uint64_t page, StoreWhy why);

  CopyFn copy_;
  ChangeStore& store_;
  MaskFn mask_;
  std::map<uint32_t, Region> regions_;
  uint64_t total_pages_ = 0;
  uint32_t next_region_ = 0;
  uint64_t next_page_ = 0;
};

}  // namespace tg::proxy
