#include "decoder/model/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "schemas/wire/bytes.h"

namespace tg::model {
namespace {

struct Unit {
  uint64_t size;
  const char* name;
};
constexpr std::array<Unit, 4> kUnits = {
    {{1ull << 40, "TiB"}, {1ull << 30, "GiB"}, {1ull << 20, "MiB"}, {1ull << 10, "KiB"}}};

// Length of the valid UTF-8 sequence at the front of `text`, 0 if there is none. Overlong forms,
// surrogates and C1 control characters count as none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead >= 0xc2 && lead <= 0xdf && tail(1)) return lead == 0xc2 && byte(1) < 0xa0 ? 0 : 2;
  if (lead >= 0xe0 && lead <= 0xef && tail(1) && tail(2)) {
    if (lead == 0xe0 && byte(1) < 0xa0) return 0;
    if (lead == 0xed && byte(1) >= 0xa0) return 0;
    // Bidirectional overrides and line separators would let a server rewrite the terminal line.
    if (lead == 0xe2 && byte(1) == 0x80 && byte(2) >= 0xa8 && byte(2) <= 0xae) return 0;
    return 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4 && tail(1) && tail(2) && tail(3)) {
    if (lead == 0xf0 && byte(1) < 0x90) return 0;
    if (lead == 0xf4 && byte(1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::string Thousands(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string Hex(uint64_t value) {
  return fmt::format("{:#x}", value);
}

std::string HexPadded(uint64_t value, int digits) {
  return fmt::format("0x{:0{}x}", value, std::clamp(digits, 1, 16));
}

std::string Bytes(uint64_t bytes) {
  return Bytes(bytes, bytes);
}

std::string Bytes(uint64_t bytes, uint64_t scale) {
  for (const Unit& unit : kUnits) {
    if (scale >= unit.size) {
      return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit.size),
                         unit.name);
    }
  }
  return bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes);
}

std::string Duration(uint64_t ns) {
  const auto text = [](double value, const char* unit) {
    return value < 9.95 ? fmt::format("{:.1f} {}", value, unit)
                        : fmt::format("{:.0f} {}", value, unit);
  };
  const double v = static_cast<double>(ns);
  if (v < 999.5) return fmt::format("{} ns", ns);
  if (v < 999.5e3) return text(v / 1e3, "us");
  if (v < 999.5e6) return text(v / 1e6, "ms");
  return v < 99.95e9 ? fmt::format("{:.1f} s", v / 1e9) : fmt::format("{:.0f} s", v / 1e9);
}

std::string Seconds(uint64_t ns) {
  return fmt::format("{}.{:06}", ns / 1'000'000'000, ns / 1000 % 1'000'000);
}

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  const bool cut = text.size() > limit;
  if (cut) text = text.substr(0, limit);
  while (!text.empty()) {
    const unsigned char c = static_cast<unsigned char>(text[0]);
    size_t n = 1;
    if (c >= 0x20 && c < 0x7f) {
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += ' ';
    } else if (c >= 0x80 && (n = Utf8Length(text)) > 0) {
      out += text.substr(0, n);
    } else {
      out += fmt::format("\\x{:02x}", c);
      n = 1;
    }
    text.remove_prefix(n);
  }
  if (cut) out += "...";
  return out;
}

uint64_t LittleEndian(std::span<const uint8_t> bytes) {
  if (bytes.size() >= 8) return LoadLe<uint64_t>(bytes.data());
  if (bytes.size() == 4) return LoadLe<uint32_t>(bytes.data());
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; i--) value = value << 8 | bytes[i - 1];
  return value;
}

std::string ValueText(std::span<const uint8_t> data, uint64_t size) {
  if (size >= 1 && size <= 8 && data.size() >= size)
    return HexPadded(LittleEndian(data.first(size)), static_cast<int>(size) * 2);
  std::string out = Bytes(size);
  if (data.empty()) return out;
  out += ' ';
  const size_t shown = std::min<size_t>({data.size(), size, 16});
  for (size_t i = 0; i < shown; i++) out += fmt::format("{:02x}", data[i]);
  if (shown < size) out += "...";
  return out;
}

std::string TargetText(const wire::RequestHeader& header) {
  using wire::Command;
  const std::string dev = header.dev ? fmt::format("dev {} ", header.dev) : std::string();
  switch (static_cast<Command>(header.command)) {
    case Command::kMmioRead:
    case Command::kMmioWrite:
      return fmt::format("{}bar{}+{:#x}", dev, header.bar, header.arg0);
    case Command::kSysmemRead:
    case Command::kSysmemWrite:
      return fmt::format("{}region {}+{:#x}", dev, header.bar, header.arg0);
    case Command::kCfgRead:
    case Command::kCfgWrite:
      return fmt::format("{}{:#x}", dev, header.arg0);
    case Command::kMapBar:
    case Command::kResizeBar:
      return fmt::format("{}{}", dev, header.bar);
    default:
      return header.dev ? fmt::format("dev {}", header.dev) : std::string();
  }
}

std::string CallText(const wire::RequestHeader& header) {
  std::string out(wire::CommandName(header.command));
  const std::string target = TargetText(header);
  if (!target.empty()) out += ' ' + target;
  return out;
}

std::string Count(uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", Thousands(n), noun, n == 1 ? "" : "s");
}

}  // namespace tg::model
