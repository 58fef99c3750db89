// The hot messages of trace.proto, encoded by hand: no protobuf object, no allocation.
//
// Each message has one Emit function that runs twice: over SizeOut to learn the size, over ByteOut
// to store it. So a size can never disagree with the bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "schemas/trace/wire_format.h"
#include "schemas/trace/writer.h"

namespace tg::trace {

class SizeOut {
 public:
  void Number(uint32_t, uint64_t v) { size_ += v != 0 ? 1 + pb::VarintSize(v) : 0; }
  void Fixed64(uint32_t, uint64_t) { size_ += 9; }
  void Bytes(uint32_t, std::span<const uint8_t> b) {
    size_ += 1 + pb::VarintSize(b.size()) + b.size();
  }
  void Text(uint32_t, std::string_view s) {
    size_ += s.empty() ? 0 : 1 + pb::VarintSize(s.size()) + s.size();
  }
  template <typename F>
  void Message(uint32_t, const F& emit) {
    SizeOut inner;
    emit(inner);
    size_ += 1 + pb::VarintSize(inner.size_) + inner.size_;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// All fields used here are below 16, so that a key is one byte.
class ByteOut {
 public:
  explicit ByteOut(uint8_t* p) : p_(p) {}
  void Number(uint32_t field, uint64_t v) {
    if (v == 0) return;
    Key(field, pb::kVarint);
    p_ = pb::PutVarint(p_, v);
  }
  void Fixed64(uint32_t field, uint64_t v) {
    Key(field, pb::kI64);
    StoreLe(p_, v);
    p_ += 8;
  }
  void Bytes(uint32_t field, std::span<const uint8_t> b) {
    Key(field, pb::kLen);
    p_ = pb::PutVarint(p_, b.size());
    if (!b.empty()) std::memcpy(p_, b.data(), b.size());
    p_ += b.size();
  }
  // A proto3 string must be UTF-8; what is not ASCII becomes '?'.
  void Text(uint32_t field, std::string_view s) {
    if (s.empty()) return;
    Key(field, pb::kLen);
    p_ = pb::PutVarint(p_, s.size());
    for (const char c : s) *p_++ = static_cast<uint8_t>(c) < 0x80 ? static_cast<uint8_t>(c) : '?';
  }
  template <typename F>
  void Message(uint32_t field, const F& emit) {
    SizeOut size;
    emit(size);
    Key(field, pb::kLen);
    p_ = pb::PutVarint(p_, size.size());
    emit(*this);
  }
  uint8_t* end() const { return p_; }

 private:
  void Key(uint32_t field, pb::Type type) { *p_++ = static_cast<uint8_t>(pb::Key(field, type)); }
  uint8_t* p_;
};

template <typename Out>
void EmitBody(Out& out, const BodyRecord& body) {
  out.Number(1, body.size);
  if (!body.data.empty()) out.Bytes(2, body.data);
  if (body.xxh3) out.Fixed64(3, *body.xxh3);
  out.Number(4, body.all_zero);
  out.Number(5, body.streamed);
}

inline bool HasBody(const BodyRecord& b) {
  return b.size != 0 || !b.data.empty() || b.xxh3 || b.all_zero || b.streamed;
}

template <typename Out>
void EmitRequest(Out& out, const RequestRecord& r) {
  out.Number(1, r.header.command);
  out.Number(2, r.header.dev);
  out.Number(3, r.header.bar);
  out.Number(4, r.header.arg0);
  out.Number(5, r.header.arg1);
  out.Number(6, r.header.arg2);
  if (HasBody(r.payload)) out.Message(7, [&](auto& o) { EmitBody(o, r.payload); });
  out.Number(8, r.truncated);
  out.Number(9, r.received);
  out.Text(10, r.injected);
  out.Text(11, r.refused);
}

template <typename Out>
void EmitReply(Out& out, const ReplyRecord& r, uint64_t calls_back, uint64_t latency) {
  out.Number(1, calls_back);
  out.Number(2, r.reply.status);
  out.Number(3, r.reply.resp0);
  out.Number(4, r.reply.resp1);
  if (HasBody(r.body)) out.Message(5, [&](auto& o) { EmitBody(o, r.body); });
  out.Number(6, r.descriptors);
  out.Number(7, r.control_truncated);
  out.Number(8, latency);
  out.Text(10, r.injected);
}

// The slot for a latency: two bytes, whatever the value.
inline constexpr uint64_t kMaxSlotLatency = (1u << 14) - 1;
inline void PutLatencySlot(uint8_t* p, uint64_t ticks) {
  p[0] = static_cast<uint8_t>(ticks & 0x7f) | 0x80;
  p[1] = static_cast<uint8_t>(ticks >> 7);
}

// Message RepeatState: always the same 51 bytes long, so that it can change in place.
struct RepeatState {
  uint64_t issued = 0;
  uint64_t answered = 0;
  uint64_t first_time = 0;  // ns since start
  uint64_t last_time = 0;
  uint32_t min_latency = 0;  // ticks
  uint32_t max_latency = 0;
  friend bool operator==(const RepeatState&, const RepeatState&) = default;
};
inline constexpr size_t kRepeatStateSize = 4 * 9 + 3 * 5;
void PutRepeatState(uint8_t* p, const RepeatState& state);
// False when `bytes` is not such a message or its checksum does not hold.
bool GetRepeatState(std::span<const uint8_t> bytes, RepeatState& state);

}  // namespace tg::trace
