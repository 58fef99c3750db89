// Small helpers of the sections made from the device model.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "decoder/model/types.h"
#include "decoder/model/words.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json TextOrNull(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

inline Json SeqOrNull(model::Stamp at) {
  return at ? Json(at.call) : Json(nullptr);
}

inline Json TimeOrNull(model::Stamp at) {
  return at ? Json(at.time_ns) : Json(nullptr);
}

// "  name         value"
inline void SectionRow(Output& out, std::string_view name, std::string_view value) {
  out.Line(fmt::format("  {:<14} {}", name, value));
}

inline std::string SectionText(const Json& value) {
  if (value.is_null()) return "not observed";
  if (value.is_string()) return model::Printable(value.get<std::string>());
  return value.dump();
}

inline std::string HexText(const Json& value, int digits = 0) {
  if (value.is_null()) return "not observed";
  return digits == 0 ? model::Hex(value.get<uint64_t>())
                     : model::HexPadded(value.get<uint64_t>(), digits);
}

inline std::string SeqText(const Json& value) {
  return value.is_null() ? std::string("-") : fmt::format("#{}", value.get<uint64_t>());
}

}  // namespace tg::report
