#include "replay/drive/addresses.h"

#include <algorithm>

#include "schemas/wire/bytes.h"

namespace tg::replay {
namespace {

constexpr uint64_t kValid = 1, kSystem = 2;
constexpr uint64_t kAddressMask = 0x0000'ffff'ffff'f000;
constexpr size_t kMaxPages = 1u << 22;  // 16 GiB of shared memory

std::vector<uint64_t> Pages(const std::vector<DmaRange>& ranges) {
  std::vector<uint64_t> pages;
  for (const DmaRange& range : ranges)
    for (uint64_t at = 0; at + AddressRewriter::kPage <= range.length && pages.size() < kMaxPages;
         at += AddressRewriter::kPage)
      pages.push_back(range.address + at);
  return pages;
}

}  // namespace

void AddressRewriter::Add(const std::vector<DmaRange>& recorded,
                          const std::vector<DmaRange>& live) {
  AddPages(Pages(recorded), Pages(live));
}

void AddressRewriter::AddPages(std::span<const uint64_t> recorded, std::span<const uint64_t> live) {
  for (size_t i = 0; i < std::min(recorded.size(), live.size()); i++) {
    if (recorded[i] == live[i])
      pages_.erase(recorded[i]);
    else if (pages_.size() < kMaxPages)
      pages_[recorded[i]] = live[i];
  }
}

size_t AddressRewriter::Rewrite(std::span<uint8_t> payload) const {
  if (pages_.empty() || payload.size() % 8 != 0) return 0;
  size_t changed = 0;
  for (size_t i = 0; i < payload.size(); i += 8) {
    const uint64_t word = LoadLe<uint64_t>(payload.data() + i);
    if ((word & (kValid | kSystem)) != (kValid | kSystem)) continue;
    const auto found = pages_.find(word & kAddressMask);
    if (found == pages_.end()) continue;
    StoreLe(payload.data() + i, (word & ~kAddressMask) | found->second);
    changed++;
  }
  return changed;
}

}  // namespace tg::replay
