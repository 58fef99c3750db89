// The protobuf wire format, as much of it as the hot packets need, written and read by hand.
// Source: the protobuf encoding guide (varint, I64, LEN, I32; key = field << 3 | type).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "schemas/wire/bytes.h"

namespace tg::trace::pb {

enum Type : uint32_t { kVarint = 0, kI64 = 1, kLen = 2, kI32 = 5 };

constexpr uint32_t Key(uint32_t field, Type type) {
  return field << 3 | type;
}

// Trace.packet, the only field at the top of the file, and the last one of each packet.
inline constexpr uint8_t kPacketTag = Key(1, kLen);
inline constexpr uint8_t kCrcKey = Key(15, kI32);
inline constexpr size_t kCrcField = 5;  // key and value

constexpr size_t VarintSize(uint64_t v) {
  return static_cast<size_t>(63 - std::countl_zero(v | 1)) / 7 + 1;
}

inline uint8_t* PutVarint(uint8_t* p, uint64_t v) {
  while (v >= 0x80) {
    *p++ = static_cast<uint8_t>(v) | 0x80;
    v >>= 7;
  }
  *p++ = static_cast<uint8_t>(v);
  return p;
}

// nullptr when the varint runs past `end` or is longer than ten bytes.
inline const uint8_t* GetVarint(const uint8_t* p, const uint8_t* end, uint64_t& value) {
  if (p < end && *p < 0x80) {
    value = *p;
    return p + 1;
  }
  uint64_t v = 0;
  for (uint32_t shift = 0; shift < 70 && p < end; shift += 7) {
    const uint8_t b = *p++;
    v |= static_cast<uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) {
      value = v;
      return p;
    }
  }
  return nullptr;
}

// One field: where its value stands. `bytes` for LEN, `value` for the others.
struct Field {
  uint32_t key = 0;
  uint64_t value = 0;
  std::span<const uint8_t> bytes;
};

// Reads the field at `p`; nullptr when it is malformed or runs past `end`.
inline const uint8_t* GetField(const uint8_t* p, const uint8_t* end, Field& field) {
  uint64_t key = 0;
  p = GetVarint(p, end, key);
  if (p == nullptr || key > UINT32_MAX || key < 8) return nullptr;
  field.key = static_cast<uint32_t>(key);
  const size_t left = static_cast<size_t>(end - p);
  switch (key & 7) {
    case kVarint:
      return GetVarint(p, end, field.value);
    case kI64:
      if (left < 8) return nullptr;
      field.value = LoadLe<uint64_t>(p);
      return p + 8;
    case kI32:
      if (left < 4) return nullptr;
      field.value = LoadLe<uint32_t>(p);
      return p + 4;
    case kLen: {
      uint64_t size = 0;
      p = GetVarint(p, end, size);
      if (p == nullptr || size > static_cast<size_t>(end - p)) return nullptr;
      field.bytes = {p, static_cast<size_t>(size)};
      return p + size;
    }
    default:
      return nullptr;
  }
}

}  // namespace tg::trace::pb
