#include "replay/script/sparse.h"

#include <algorithm>
#include <cstring>

namespace tg::replay {

void SparseMemory::Store(uint64_t offset, const uint8_t* bytes, size_t size) {
  const size_t at = offset % kPage;
  const auto [found, fresh] = pages_.try_emplace(offset / kPage);
  Page& page = found->second;
  if (size == kPage) {
    page.known.reset();
  } else {
    if (fresh) page.known = std::make_unique<std::bitset<kPage>>();
    if (page.known)
      for (size_t i = at; i < at + size; i++) page.known->set(i);
  }
  if (!bytes && size == kPage) {
    page.bytes.reset();
    return;
  }
  if (!page.bytes) {
    if (!bytes) return;
    page.bytes = std::make_unique<std::array<uint8_t, kPage>>();
  }
  if (bytes)
    std::memcpy(page.bytes->data() + at, bytes, size);
  else
    std::memset(page.bytes->data() + at, 0, size);
}

void SparseMemory::Write(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes.size(), kPage - offset % kPage);
    Store(offset, bytes.data(), size);
    bytes = bytes.subspan(size);
    offset += size;
  }
}

void SparseMemory::Zero(uint64_t offset, uint64_t size) {
  size = std::min({size, kMaxZeros, ~offset});
  while (size != 0) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(size, kPage - offset % kPage));
    Store(offset, nullptr, part);
    size -= part;
    offset += part;
  }
}

void SparseMemory::Read(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes.size(), kPage - offset % kPage);
    const auto found = pages_.find(offset / kPage);
    if (found == pages_.end() || !found->second.bytes)
      std::memset(bytes.data(), 0, size);
    else
      std::memcpy(bytes.data(), found->second.bytes->data() + offset % kPage, size);
    bytes = bytes.subspan(size);
    offset += size;
  }
}

bool SparseMemory::Known(uint64_t offset, uint64_t size) const {
  while (size != 0) {
    const uint64_t part = std::min<uint64_t>(size, kPage - offset % kPage);
    const auto found = pages_.find(offset / kPage);
    if (found == pages_.end()) return false;
    if (found->second.known)
      for (uint64_t i = offset % kPage; i < offset % kPage + part; i++)
        if (!found->second.known->test(static_cast<size_t>(i))) return false;
    size -= part;
    if (part > ~offset) return false;
    offset += part;
  }
  return true;
}

}  // namespace tg::replay
