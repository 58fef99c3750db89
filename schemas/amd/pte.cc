#include "schemas/amd/pte.h"

namespace tg::amd {
namespace {

constexpr uint64_t Bit(int bit) {
  return 1ull << bit;
}

// Bits 0..11 are the same in all formats.
constexpr uint64_t kValid = Bit(0);
constexpr uint64_t kSystem = Bit(1);
constexpr uint64_t kSnooped = Bit(2);
constexpr uint64_t kTmz = Bit(3);
constexpr uint64_t kExecute = Bit(4);
constexpr uint64_t kRead = Bit(5);
constexpr uint64_t kWrite = Bit(6);
constexpr int kFragShift = 7;
constexpr uint64_t kFragMask = 0x1f;

struct FormatBits {
  int mtype_shift;
  uint64_t mtype_mask;
  uint64_t prt;
  uint64_t huge;  // leaf above the last level
};
constexpr FormatBits kBits[] = {
    {57, 3, Bit(51), Bit(54)},
    {48, 7, Bit(51), Bit(54)},
    {54, 3, Bit(56), Bit(63)},
};
constexpr uint64_t kGfx9TranslateFurther = Bit(56);  // TF: a PDB0 entry that points at a table
constexpr uint64_t kGfx9BlockSize9 = 9ull << 59;     // BFS in PDB1 entries
constexpr uint64_t kGfx12IsPte = Bit(63);

bool IsLeaf(PteFormat format, int level, uint64_t raw) {
  if (level >= kPageLeafLevel) return true;
  if (format == PteFormat::kGfx9 && level == 2) return (raw & kGfx9TranslateFurther) == 0;
  return (raw & kBits[static_cast<int>(format)].huge) != 0;
}

}  // namespace

PteFormat PteFormatFor(IpVersion gc) {
  if (gc.major < 10) return PteFormat::kGfx9;
  return gc.major < 12 ? PteFormat::kGfx11 : PteFormat::kGfx12;
}

std::string_view PteFormatName(PteFormat format) {
  constexpr std::string_view kNames[] = {"gfx9.4", "gfx10/11", "gfx12"};
  return kNames[static_cast<int>(format)];
}

std::string_view LevelName(int level) {
  constexpr std::string_view kNames[] = {"PDB2", "PDB1", "PDB0", "PTB"};
  return level >= 0 && level < kPageLevels ? kNames[level] : "?";
}

Pte DecodePte(PteFormat format, int level, uint64_t raw) {
  const FormatBits& bits = kBits[static_cast<int>(format)];
  Pte pte;
  pte.valid = (raw & kValid) != 0;
  pte.system = (raw & kSystem) != 0;
  pte.snooped = (raw & kSnooped) != 0;
  pte.tmz = (raw & kTmz) != 0;
  pte.execute = (raw & kExecute) != 0;
  pte.read = (raw & kRead) != 0;
  pte.write = (raw & kWrite) != 0;
  pte.leaf = IsLeaf(format, level, raw);
  pte.prt = (raw & bits.prt) != 0 && !(format == PteFormat::kGfx9 && !pte.leaf);
  pte.frag = static_cast<uint8_t>((raw >> kFragShift) & kFragMask);
  // In a gfx9 table entry these bits belong to the block fragment size.
  if (pte.leaf || format != PteFormat::kGfx9) {
    pte.mtype = static_cast<uint8_t>((raw >> bits.mtype_shift) & bits.mtype_mask);
  }
  pte.address = raw & kPteAddressMask;
  return pte;
}

uint64_t EncodePte(PteFormat format, int level, const Pte& pte) {
  const FormatBits& bits = kBits[static_cast<int>(format)];
  uint64_t raw = pte.address & kPteAddressMask;
  if (pte.valid) raw |= kValid;
  if (pte.system) raw |= kSystem;
  if (pte.snooped) raw |= kSnooped;
  if (pte.tmz) raw |= kTmz;
  if (pte.execute) raw |= kExecute;
  if (pte.read) raw |= kRead;
  if (pte.write) raw |= kWrite;
  if (pte.prt) raw |= bits.prt;
  raw |= (pte.frag & kFragMask) << kFragShift;
  const bool leaf = pte.leaf || level >= kPageLeafLevel;
  if (leaf || format != PteFormat::kGfx9) {
    raw |= (pte.mtype & bits.mtype_mask) << bits.mtype_shift;
  }
  if (format == PteFormat::kGfx9) {
    if (leaf && level < 2) raw |= bits.huge;
    if (!leaf && level == 1) raw |= kGfx9BlockSize9;
    if (!leaf && level == 2) raw |= kGfx9TranslateFurther;
  } else if (leaf) {
    if (level < kPageLeafLevel) raw |= bits.huge;
    if (format == PteFormat::kGfx12) raw |= kGfx12IsPte;
  }
  return raw;
}

std::string DescribePte(PteFormat format, const Pte& pte) {
  std::string text = pte.valid ? "valid" : "not valid";
  if (!pte.leaf) return text + (pte.system ? " table in system memory" : " table");
  text += pte.system ? " system" : " vram";
  if (pte.snooped) text += " snooped";
  if (pte.tmz) text += " tmz";
  if (pte.prt) text += " prt";
  text += ' ';
  text += pte.read ? 'r' : '-';
  text += pte.write ? 'w' : '-';
  text += pte.execute ? 'x' : '-';
  if (pte.mtype == kMtypeUncached) {
    text += " UC";
  } else if (pte.mtype == kMtypeCached) {
    text += format == PteFormat::kGfx9 ? " NC" : " RW";
  } else {
    text += " mtype " + std::to_string(pte.mtype);
  }
  if (pte.frag != 0) text += " frag " + std::to_string(pte.frag);
  return text;
}

}  // namespace tg::amd
