// How packet formats are written down: rows of bit fields. Used by the SDMA and PM4 decoders only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schemas/amd/packet.h"

namespace tg::amd {

// One field: bits [msb:lsb] of dword `dw`, continued, where hi_dw is not 0, by bits [hi_msb:0] of
// dword hi_dw. Fields marked quiet are left out when zero: cache policies and the like, which would
// bury the rest.
struct FieldSpec {
  std::string_view name;
  FieldKind kind = FieldKind::kValue;
  uint8_t gens = 0xff;  // bit n: generation n of the table has it
  uint8_t dw = 0;
  uint8_t lsb = 0;
  uint8_t msb = 31;
  uint8_t hi_dw = 0;
  uint8_t hi_msb = 31;
  bool in_place = false;  // the bits below lsb are zero and belong to the value (aligned addresses)
  uint8_t add = 0;        // the packet holds n - add
  bool quiet = false;
};

constexpr FieldSpec Address(std::string_view name, uint8_t dw, uint8_t gens = 0xff) {
  return {.name = name,
          .kind = FieldKind::kAddress,
          .gens = gens,
          .dw = dw,
          .hi_dw = static_cast<uint8_t>(dw + 1)};
}
constexpr FieldSpec Word(std::string_view name, FieldKind kind, uint8_t dw, uint8_t gens = 0xff) {
  return {.name = name, .kind = kind, .gens = gens, .dw = dw};
}
constexpr FieldSpec Bits(std::string_view name, FieldKind kind, uint8_t dw, uint8_t msb,
                         uint8_t lsb, uint8_t gens = 0xff) {
  return {.name = name, .kind = kind, .gens = gens, .dw = dw, .lsb = lsb, .msb = msb};
}
constexpr FieldSpec Quiet(std::string_view name, uint8_t dw, uint8_t msb, uint8_t lsb,
                          uint8_t gens = 0xff) {
  return {.name = name,
          .kind = FieldKind::kFlags,
          .gens = gens,
          .dw = dw,
          .lsb = lsb,
          .msb = msb,
          .quiet = true};
}

// Adds the fields that generation bit `gen` has and that lie within `bytes`.
void AddFields(std::span<const FieldSpec> specs, uint8_t gen, std::span<const uint8_t> bytes,
               FieldList& out);
// Whether a dword behind the header, of which only some bits belong to fields, has others set.
bool HasOddBits(std::span<const FieldSpec> specs, uint8_t gen, std::span<const uint8_t> bytes);
// The bits of dword 0 that these fields use in generation bit `gen`.
uint32_t HeaderBits(std::span<const FieldSpec> specs, uint8_t gen);

}  // namespace tg::amd
