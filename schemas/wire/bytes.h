// Little-endian loads and stores at any alignment.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace tg {

static_assert(std::endian::native == std::endian::little,
              "both sides of this protocol, and every system it runs on, are little-endian");

template <typename T>
T LoadLe(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void StoreLe(void* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

}  // namespace tg
