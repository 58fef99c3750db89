// Memory of any size of which little is known: bytes as last stored, and which were ever stored.
// "Never seen" is kept apart from zero.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

namespace tg::replay {

class SparseMemory {
 public:
  static constexpr size_t kPage = 4096;
  // Longest run of zeros that one Zero() stores; a trace may claim any length.
  static constexpr uint64_t kMaxZeros = 1ull << 30;

  void Write(uint64_t offset, std::span<const uint8_t> bytes);
  void Zero(uint64_t offset, uint64_t size);
  // Bytes never stored read as zero.
  void Read(uint64_t offset, std::span<uint8_t> bytes) const;
  bool Known(uint64_t offset, uint64_t size) const;
  size_t pages() const { return pages_.size(); }

 private:
  // A page without bytes is all zero, a page without a map is known whole.
  struct Page {
    std::unique_ptr<std::array<uint8_t, kPage>> bytes;
    std::unique_ptr<std::bitset<kPage>> known;
  };
  void Store(uint64_t offset, const uint8_t* bytes, size_t size);  // within one page

  std::map<uint64_t, Page> pages_;
};

}  // namespace tg::replay
