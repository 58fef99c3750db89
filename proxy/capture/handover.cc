#include "proxy/capture/handover.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace tg::proxy {
namespace {

// A reader that keeps up leaves most of the ring untouched: from here on it is looked whether the
// writer may begin at the front again, where memory is warm.
constexpr size_t kWarm = 256 * 1024;

constexpr size_t Padded(size_t n) {
  return (n + 7) & ~size_t{7};
}

}  // namespace

Handover::Handover(size_t bytes)
    : capacity_(std::bit_ceil(bytes < 65536 ? size_t{65536} : bytes)),
      buffer_(new uint8_t[capacity_]) {}  // not touched before it is used

bool Handover::Put(const Handed& record) {
  const bool sysmem = record.header.command == static_cast<uint8_t>(wire::Command::kSysmemWrite);
  const size_t most = sysmem ? kHandedSysmem : kHandedBytes;
  const size_t data_size = record.data.size() <= most ? record.data.size() : 0;
  const size_t size = Padded(sizeof(Header) + data_size);
  const uint64_t head = head_.load(std::memory_order_relaxed);
  const size_t at = head & (capacity_ - 1);
  const size_t to_end = capacity_ - at;
  size_t skip = to_end < size ? to_end : 0;
  if (at >= std::max(size, std::min(kWarm, capacity_ / 4))) {
    cached_tail_ = tail_.load(std::memory_order_acquire);
    if (cached_tail_ == head) skip = to_end;
  }
  if (head + skip + size - cached_tail_ > capacity_) {
    cached_tail_ = tail_.load(std::memory_order_acquire);
    if (head + skip + size - cached_tail_ > capacity_) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  }
  if (skip >= sizeof(uint32_t)) std::memset(buffer_.get() + at, 0, sizeof(uint32_t));
  uint8_t* to = buffer_.get() + (skip ? 0 : at);
  // In its place at once: put together elsewhere and copied, it costs more than all the rest here.
  new (to) Header{.size = static_cast<uint32_t>(size),
                  .kind = record.kind,
                  .command = record.header.command,
                  .status = record.reply.status,
                  .data_size = static_cast<uint32_t>(data_size),
                  .dev = record.header.dev,
                  .bar = record.header.bar,
                  .call = record.call,
                  .now = record.now,
                  .arg0 = record.header.arg0,
                  .arg1 = record.header.arg1,
                  .arg2 = record.header.arg2,
                  .resp0 = record.reply.resp0,
                  .resp1 = record.reply.resp1,
                  .total = record.size,
                  .offset = record.offset,
                  .dropped = dropped_.load(std::memory_order_relaxed)};
  if (data_size) std::memcpy(to + sizeof(Header), record.data.data(), data_size);
  head_.store(head + skip + size, std::memory_order_release);
  return true;
}

bool Handover::Take(Handed& record, uint64_t& dropped_before) {
  dropped_before = 0;
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail == head_.load(std::memory_order_acquire)) return false;
  size_t at = tail & (capacity_ - 1);
  uint32_t size = 0;
  std::memcpy(&size, buffer_.get() + at, sizeof size);
  if (size == 0) {
    tail += capacity_ - at;
    tail_.store(tail, std::memory_order_release);
    at = 0;
  }
  const Header& header = *std::launder(reinterpret_cast<const Header*>(buffer_.get() + at));
  record.kind = header.kind;
  record.call = header.call;
  record.now = header.now;
  record.header = {.command = header.command,
                   .dev = header.dev,
                   .bar = header.bar,
                   .arg0 = header.arg0,
                   .arg1 = header.arg1,
                   .arg2 = header.arg2};
  record.reply = {.status = header.status, .resp0 = header.resp0, .resp1 = header.resp1};
  record.size = header.total;
  record.offset = header.offset;
  record.data = {buffer_.get() + at + sizeof(Header), header.data_size};
  taken_ = header.size;
  dropped_before = header.dropped - told_;
  told_ = header.dropped;
  return true;
}

void Handover::Release() {
  tail_.store(tail_.load(std::memory_order_relaxed) + taken_, std::memory_order_release);
  taken_ = 0;
}

}  // namespace tg::proxy
