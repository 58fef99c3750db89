// Bytes written down as text, for tests.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tg::test {

inline int Nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// "0800 00d0" -> the bytes in that order.
inline std::vector<uint8_t> Bytes(std::string_view hex) {
  std::vector<uint8_t> out;
  int high = -1;
  for (char c : hex) {
    const int n = Nibble(c);
    if (n < 0) continue;
    if (high < 0) {
      high = n;
    } else {
      out.push_back(static_cast<uint8_t>(high << 4 | n));
      high = -1;
    }
  }
  return out;
}

// Dwords as a register dump shows them ("d0000008 0100fff0"), stored little-endian.
inline std::vector<uint8_t> Dwords(std::string_view hex) {
  std::vector<uint8_t> out;
  uint32_t value = 0;
  int digits = 0;
  for (char c : hex) {
    const int n = Nibble(c);
    if (n < 0) continue;
    value = value << 4 | static_cast<uint32_t>(n);
    if (++digits == 8) {
      for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
      value = 0;
      digits = 0;
    }
  }
  return out;
}

inline void Append(std::vector<uint8_t>& to, const std::vector<uint8_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace tg::test
