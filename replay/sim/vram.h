// The card's memory: as large as the real one, but only pages that were touched take room here.
#pragma once

#include <cstdint>
#include <span>

#include "schemas/result.h"

namespace tg::sim {

class Vram {
 public:
  static Result<Vram> Create(uint64_t size);
  Vram(Vram&& other) noexcept;
  Vram& operator=(Vram&&) = delete;
  ~Vram();

  uint64_t size() const { return size_; }
  // [offset, offset + count), or an empty span if that is not all VRAM (or count is 0).
  std::span<uint8_t> At(uint64_t offset, uint64_t count) {
    if (offset > size_ || count > size_ - offset) return {};
    return {base_ + offset, static_cast<size_t>(count)};
  }
  // Everything reads as zero again, and takes no room.
  Result<void> Clear();

 private:
  Vram(uint8_t* base, uint64_t size) : base_(base), size_(size) {}
  uint8_t* base_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tg::sim
