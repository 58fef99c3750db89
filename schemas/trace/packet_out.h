// Appends packets to the mapped segments: placement, time, checksum, publication, and pausing when
// there is no room. Knows nothing of calls. Not thread-safe (TraceWriter holds the lock).
//
// A packet in the file:   0a len | 08 dt | content ... | 7d crc32c
// Everything but the first byte is stored first; while that byte is zero, the file ends there.
// A packet that crosses a segment's end is built in a scratch buffer and copied in two pieces.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/segments.h"
#include "schemas/trace/wire_format.h"

namespace tg::trace {

class PacketOut {
 public:
  enum class Outcome : uint8_t { kWritten, kNoRoom };

  explicit PacketOut(SegmentSupply& supply)
      : supply_(supply), scratch_(new uint8_t[kMaxPacket + 16]) {}

  void Begin(const Segment& first) { current_ = first; }

  // Writes a packet of time `tick` (ticks since start; dt comes from it) whose content, `size`
  // bytes, `emit(uint8_t*)` stores. After the checksum and before publication `fill(uint8_t* end)`
  // may still store into the content, which ends at `end`.
  template <typename Emit, typename Fill>
  Outcome Put(size_t size, uint64_t tick, const Emit& emit, const Fill& fill) {
    const uint64_t dt = tick > tick_ ? tick - tick_ : 0;
    const size_t dt_size = dt != 0 ? 1 + pb::VarintSize(dt) : 0;
    const size_t body = dt_size + size + pb::kCrcField;
    const size_t total = 1 + pb::VarintSize(body) + body;
    uint8_t* const at = Place(total);
    if (at == nullptr) return Outcome::kNoRoom;
    uint8_t* p = pb::PutVarint(at + 1, body);
    const uint8_t* const begin = p;
    if (dt != 0) {
      *p++ = pb::Key(1, pb::kVarint);
      p = pb::PutVarint(p, dt);
    }
    emit(p);
    p += size;
    p[0] = pb::kCrcKey;
    StoreLe(p + 1, Crc32c({begin, p}));
    fill(p);
    Publish(at, total);
    tick_ += dt;
    body_ = in_place_ ? begin : nullptr;
    return Outcome::kWritten;
  }
  template <typename Emit>
  Outcome Put(size_t size, uint64_t tick, const Emit& emit) {
    return Put(size, tick, emit, [](uint8_t*) {});
  }

  // The last packet lies in one piece in the mapping, and this is where its message begins;
  // nullptr when it crosses a segment's end.
  const uint8_t* in_place_body() const { return body_; }

  // True when a packet of `total` bytes would lie in the current segment.
  bool FitsInPlace(size_t total) const { return total + kReserve <= room(); }

  // Room that is left for the packets that end a file on a full disk.
  void UseReserve() { reserve_ = 0; }
  // How long Put waits for a segment that is not ready yet.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  uint64_t position() const { return position_; }  // file offset of the next packet
  uint64_t last() const { return last_; }          // and of the last one
  uint64_t tick() const { return tick_; }          // the last packet's
  // For packets that set the clock absolutely: the next one has no dt.
  void SetTick(uint64_t tick) { tick_ = tick > tick_ ? tick : tick_; }
  uint64_t packets() const { return packets_; }
  const Segment& segment() const { return current_; }

  static constexpr size_t kReserve = 4096;

 private:
  size_t room() const { return static_cast<size_t>(current_.end() - position_); }

  uint8_t* Place(size_t total) {
    if (total + reserve_ > room() && !PlaceNearEnd(total)) return nullptr;
    in_place_ = total <= room();
    return in_place_ ? current_.bytes.data() + (position_ - current_.offset) : scratch_.get();
  }
  bool PlaceNearEnd(size_t total);

  void Publish(uint8_t* at, size_t total) {
    if (in_place_)
      StoreTag(at);
    else
      PublishAcross(at, total);
    last_ = position_;
    position_ += total;
    packets_++;
  }
  // A compiler builtin, as libc++ has had std::atomic_ref only since version 19.
  static void StoreTag(uint8_t* at) { __atomic_store_n(at, pb::kPacketTag, __ATOMIC_RELEASE); }
  void PublishAcross(const uint8_t* bytes, size_t total);

  SegmentSupply& supply_;
  std::unique_ptr<uint8_t[]> scratch_;
  Segment current_;
  size_t reserve_ = kReserve;
  std::chrono::milliseconds patience_{20};
  uint64_t position_ = 0;
  uint64_t last_ = 0;
  uint64_t tick_ = 0;
  uint64_t packets_ = 0;
  bool in_place_ = false;
  const uint8_t* body_ = nullptr;
};

}  // namespace tg::trace
