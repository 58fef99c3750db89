// Hex text to bytes, for tests whose data come from the specification.
#pragma once

#include <cctype>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tg::test {

// Blanks are skipped; "00*24" after a byte repeats it.
inline std::vector<uint8_t> Hex(std::string_view text) {
  const auto digit = [](char c) {
    return c <= '9' ? c - '0' : (std::tolower(static_cast<unsigned char>(c)) - 'a' + 10);
  };
  std::vector<uint8_t> out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '|') {
      i++;
    } else if (text[i] == '*') {
      size_t n = 0;
      for (i++; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); i++)
        n = n * 10 + static_cast<size_t>(text[i] - '0');
      out.insert(out.end(), n - 1, out.back());
    } else {
      out.push_back(static_cast<uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
      i += 2;
    }
  }
  return out;
}

}  // namespace tg::test
