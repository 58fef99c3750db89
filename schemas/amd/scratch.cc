#include "schemas/amd/scratch.h"

#include <cstdio>
#include <iterator>

namespace tg::amd {
namespace {

constexpr AmVersion kVersions[] = {
    {0xA0000001, "2025-01-10", "f457cb64d6", "first warm start"},
    {0xA0000002, "2025-01-24", "dc10187fc0", "am_smi"},
    {0xA0000003, "2025-04-30", "fcdda4fc09", "boot memory at the start of VRAM"},
    {0xA0000004, "2025-05-14", "0788659d08", "USB GPU cold boot"},
    {0xA0000005, "2025-05-30", "883bb4541c", "reserved address space"},
    {0xA0000006, "2025-07-22", "3faa352dcc", "memory manager"},
    {0xA0000007, "2025-12-22", "f6bda6ae4e", "continue from saved state"},
    {0xA0000008, "2026-01-26", "3f25eb3026", "interrupt rings"},
};

std::string Hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

}  // namespace

std::span<const AmVersion> AmVersions() {
  return kVersions;
}

const AmVersion* FindAmVersion(uint32_t reg7) {
  for (const AmVersion& version : kVersions) {
    if (version.value == reg7) return &version;
  }
  return nullptr;
}

Reg7Kind ClassifyReg7(uint32_t reg7) {
  if (reg7 == 0xFFFFFFFF) return Reg7Kind::kAllOnes;
  if (reg7 == 0) return Reg7Kind::kZero;
  if (reg7 == kAmVersionCurrent) return Reg7Kind::kCurrent;
  if (FindAmVersion(reg7)) return Reg7Kind::kOlder;
  if ((reg7 & 0xFFFFFF00) == kAmVersionPrefix) return Reg7Kind::kUnknownAm;
  return Reg7Kind::kForeign;
}

std::string DescribeReg7(uint32_t reg7) {
  const AmVersion* version = FindAmVersion(reg7);
  switch (ClassifyReg7(reg7)) {
    case Reg7Kind::kCurrent:
      return "AM since " + std::string(version->since);
    case Reg7Kind::kOlder:
      return "AM of " + std::string(version->since) + ", older than the current " +
             Hex(kAmVersionCurrent);
    case Reg7Kind::kUnknownAm:
      return "AM, a version this decoder does not know";
    case Reg7Kind::kZero:
      return "not set up by AM since power-on or reset";
    case Reg7Kind::kAllOnes:
      return "all ones: not a value, the read itself failed";
    case Reg7Kind::kForeign:
      break;
  }
  return "not a value of AM: another driver's, or left from power-on";
}

std::string DescribeReg6(uint32_t reg7, uint32_t reg6) {
  if (reg6 == 0xFFFFFFFF) return "all ones: not a value, the read itself failed";
  if ((reg7 & 0xFFFFFF00) == kAmVersionPrefix && reg7 < 0xA0000007) {
    return "not used by this AM version";
  }
  switch (reg6) {
    case 0:
      return "previous session finished cleanly";
    case 1:
      return "previous session did not finish cleanly (killed, or ended in error)";
    default:
      return "not a value that AM writes";
  }
}

}  // namespace tg::amd
