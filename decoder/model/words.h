// How this project writes numbers, sizes, times and RPC targets. One place, so that the report, the
// log and the warnings use the same words for the same thing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schemas/wire/commands.h"

namespace tg::model {

// 5213 -> "5,213".
std::string Thousands(uint64_t value);
// 0x2480 -> "0x2480".
std::string Hex(uint64_t value);
// Padded to `digits` hex digits: 0x2480, 8 -> "0x00002480".
std::string HexPadded(uint64_t value, int digits);
// 2097152 -> "2.0 MiB"; below 1 KiB "17 bytes".
std::string Bytes(uint64_t bytes);
// In the unit that fits `scale`: Bytes(512 KiB, 2 MiB) -> "0.5 MiB".
std::string Bytes(uint64_t bytes, uint64_t scale);
// 43210987 ns -> "43 ms"; two digits or three, "2.0 s", "10 us", "800 ns".
std::string Duration(uint64_t ns);
// Seconds since the trace's start with microseconds: "12.000345".
std::string Seconds(uint64_t ns);
// Untrusted text made fit for a terminal: UTF-8 kept, control characters and broken sequences as
// \xNN, at most `limit` bytes of input ("..." when cut).
std::string Printable(std::string_view text, size_t limit = 400);

// The first 8 bytes at most, little-endian.
uint64_t LittleEndian(std::span<const uint8_t> bytes);
// "0x00002480" for 1..8 bytes, else "16 bytes 00112233...".
std::string ValueText(std::span<const uint8_t> data, uint64_t size);

// "bar2+0x800", "region 7+0xff0", "0x4" (configuration space), "bar 1", or "" where a command has
// no target. A device other than 0 is named in front: "dev 1 bar2+0x800".
std::string TargetText(const wire::RequestHeader& header);
// Command and target: "MMIO_WRITE bar2+0x800", "MAP_BAR 1", "RESET".
std::string CallText(const wire::RequestHeader& header);
// "1 request", "2 requests".
std::string Count(uint64_t n, std::string_view noun);

// Counters fed from traces stop at the largest number instead of starting over.
constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
constexpr uint64_t SaturatingMul(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

}  // namespace tg::model
