// Entries of the GPU's page tables: four levels of 512 x u64, one format per generation.
//
//   level 0 PDB2 (root)  bits 47:39 of (va - start)  an entry covers 512 GiB
//   level 1 PDB1              38:30                                    1 GiB
//   level 2 PDB0              29:21                                    2 MiB
//   level 3 PTB               20:12                                    4 KiB
//
// A leaf above level 3 ("huge") covers the whole range of its entry, and its address need not be
// aligned to what it covers: physical = address + (va & (cover - 1)). Add, never OR.
//
// Facts: kernel amdgpu_vm.h (AMDGPU_PTE_*, AMDGPU_PDE_*); which bits tinygrad's AM driver sets:
// runtime/support/am/ip.py, get_pte_flags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schemas/amd/ip.h"

namespace tg::amd {

enum class PteFormat : uint8_t { kGfx9, kGfx11, kGfx12 };  // 9.4/9.5; 10 and 11; 12 and later
PteFormat PteFormatFor(IpVersion gc);
std::string_view PteFormatName(PteFormat format);

inline constexpr int kPageLevels = 4;
inline constexpr int kPageLeafLevel = 3;
inline constexpr uint64_t kPageTableSize = 0x1000;
inline constexpr uint32_t kPageTableEntries = 512;
inline constexpr uint64_t kPteAddressMask = 0x0000FFFFFFFFF000ull;
// Where tinygrad's address space begins (CONTEXT0_PAGE_TABLE_START << 12).
inline constexpr uint64_t kVaStart = 0x200000000000ull;

constexpr int LevelShift(int level) {
  return 39 - 9 * level;
}
constexpr uint64_t LevelCover(int level) {
  return 1ull << LevelShift(level);
}
constexpr uint32_t LevelIndex(int level, uint64_t va_minus_start) {
  return static_cast<uint32_t>(va_minus_start >> LevelShift(level)) & (kPageTableEntries - 1);
}
std::string_view LevelName(int level);  // "PDB2" .. "PTB"

inline constexpr uint8_t kMtypeCached = 0;  // NC on gfx9, C_RW_US on gfx11/12
inline constexpr uint8_t kMtypeUncached = 3;

struct Pte {
  bool valid = false;
  bool system = false;  // address is a DMA address of host memory, else an offset in VRAM
  bool snooped = false;
  bool tmz = false;
  bool execute = false;
  bool read = false;
  bool write = false;
  bool prt = false;
  bool leaf = false;  // maps memory; else points at the next table
  uint8_t frag = 0;   // page size hint: 4 KiB << frag
  uint8_t mtype = 0;
  uint64_t address = 0;
  friend bool operator==(const Pte&, const Pte&) = default;
};

// `level` 0..3. `leaf` says what the format's bits say, also in an entry that is not valid.
Pte DecodePte(PteFormat format, int level, uint64_t raw);
// The entry as the AM driver writes it: a table entry gets the format's table bits (BFS, TF) and
// none of the permissions in `pte` but those it has.
uint64_t EncodePte(PteFormat format, int level, const Pte& pte);

// "valid system snooped rwx UC frag 9"
std::string DescribePte(PteFormat format, const Pte& pte);

}  // namespace tg::amd
