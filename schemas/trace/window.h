// A sliding window over a file (or over bytes in memory): bounded memory whatever the file's size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schemas/result.h"
#include "schemas/trace/writer.h"

namespace tg::trace {

class Window {
 public:
  static Result<std::unique_ptr<Window>> Open(const std::string& path);
  explicit Window(std::vector<uint8_t> bytes) : buffer_(std::move(bytes)), end_(buffer_.size()) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // The bytes at `offset`: at least `want` of them (at most kMaxWant), fewer only at the end of the
  // file. Valid until the next call. Offsets should only grow, by and large.
  std::span<const uint8_t> At(uint64_t offset, size_t want) {
    if (offset >= base_ && offset + want <= end_) return Buffered(offset);
    return Refill(offset, want);
  }
  // What was read may be old: read it anew.
  void Forget();
  uint64_t FileSize();
  // False when the bytes cannot change.
  bool live() const { return fd_ >= 0; }

  static constexpr size_t kChunk = 256 * 1024;
  // Bytes read at a time, unless a packet is larger.
  void set_chunk(size_t chunk) { chunk_ = chunk; }

  static constexpr size_t kMaxWant = kMaxPacket + 16;

 private:
  explicit Window(int fd) : fd_(fd) {}
  std::span<const uint8_t> Buffered(uint64_t offset) const {
    return {buffer_.data() + (offset - base_), static_cast<size_t>(end_ - offset)};
  }
  std::span<const uint8_t> Refill(uint64_t offset, size_t want);

  size_t chunk_ = kChunk;
  int fd_ = -1;  // -1: everything is in buffer_
  std::vector<uint8_t> buffer_;
  uint64_t base_ = 0;    // file offset of buffer_[0]
  uint64_t end_ = 0;     // and of the first byte not in it
  bool at_end_ = false;  // the last read met the end of the file
};

}  // namespace tg::trace
