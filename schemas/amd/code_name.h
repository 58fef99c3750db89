// Numbers and what they are called: the shape of the small fact tables here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace tg::amd {

struct CodeName {
  uint32_t code;
  std::string_view name;
};

// `table` in ascending order of codes. Empty when there is no such code.
constexpr std::string_view FindCode(std::span<const CodeName> table, uint32_t code) {
  const auto found = std::lower_bound(table.begin(), table.end(), code,
                                      [](const CodeName& c, uint32_t n) { return c.code < n; });
  return found != table.end() && found->code == code ? found->name : std::string_view();
}

}  // namespace tg::amd
