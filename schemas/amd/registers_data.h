// The generated register tables (registers_data.cc); used through registers.h only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schemas/amd/ip.h"

namespace tg::amd {

// One register of one IP module. `offset` counts dwords from bases[base] of an instance.
struct RegisterDef {
  uint32_t offset;
  uint16_t name;    // index into the name table, which is in alphabetical order
  uint16_t fields;  // index into the field sets
  uint8_t base;
  uint8_t alias;  // 1: another register of the module has this address, and its name is shown
};

namespace data {

struct Module {
  const char* prefix;  // "gc"
  IpVersion version;
  uint32_t first;  // in kRegisters; its registers are in alphabetical order
  uint32_t count;
};
struct FieldDef {
  uint16_t name;
  uint8_t lsb;
  uint8_t msb;
};

extern const Module kModules[];  // ascending versions within a prefix
extern const size_t kModuleCount;
extern const RegisterDef kRegisters[];
extern const size_t kRegisterCount;
extern const char kNamePool[];
extern const uint32_t kNameOffset[];
extern const size_t kNameCount;
extern const char kFieldNamePool[];
extern const uint32_t kFieldNameOffset[];
extern const uint16_t kFieldSetStart[];
extern const FieldDef kFields[];

}  // namespace data
}  // namespace tg::amd
