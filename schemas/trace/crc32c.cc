#include "schemas/trace/crc32c.h"

#include <array>

#include "schemas/wire/bytes.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace tg::trace {
namespace {

constexpr uint32_t kReflected = 0x82f63b78;
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b contributes when k more bytes follow it within the same step of eight.
constexpr Tables MakeTables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? kReflected : 0);
    t[0][b] = crc;
  }
  for (size_t k = 1; k < 8; k++) {
    for (size_t b = 0; b < 256; b++) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xff];
  }
  return t;
}
constexpr Tables kTables = MakeTables();

uint32_t UpdateTable(uint32_t crc, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    const uint64_t v = LoadLe<uint64_t>(p) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; k++) crc ^= kTables[7 - k][(v >> (8 * k)) & 0xff];
  }
  for (; n > 0; p++, n--) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return crc;
}

#if defined(__x86_64__)
#define TG_CRC_HARDWARE 1
__attribute__((target("sse4.2"))) uint32_t UpdateHardware(uint32_t crc, const uint8_t* p,
                                                          size_t n) {
  uint64_t wide = crc;
  for (; n >= 8; p += 8, n -= 8) wide = _mm_crc32_u64(wide, LoadLe<uint64_t>(p));
  crc = static_cast<uint32_t>(wide);
  if (n >= 4) {
    crc = _mm_crc32_u32(crc, LoadLe<uint32_t>(p));
    p += 4;
    n -= 4;
  }
  for (; n > 0; p++, n--) crc = _mm_crc32_u8(crc, *p);
  return crc;
}
const bool kHaveHardware = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2") != 0;
}();
#elif defined(__ARM_FEATURE_CRC32)
#define TG_CRC_HARDWARE 1
uint32_t UpdateHardware(uint32_t crc, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) crc = __crc32cd(crc, LoadLe<uint64_t>(p));
  for (; n > 0; p++, n--) crc = __crc32cb(crc, *p);
  return crc;
}
constexpr bool kHaveHardware = true;
#endif

}  // namespace

uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc) {
#ifdef TG_CRC_HARDWARE
  if (kHaveHardware) return ~UpdateHardware(~crc, bytes.data(), bytes.size());
#endif
  return ~UpdateTable(~crc, bytes.data(), bytes.size());
}

uint32_t Crc32cTable(std::span<const uint8_t> bytes, uint32_t crc) {
  return ~UpdateTable(~crc, bytes.data(), bytes.size());
}

}  // namespace tg::trace
