// The GPU's address space, rebuilt from the page-table writes in the trace: walk an address, list
// mappings, find who wrote an entry. Untrusted: tables may be cyclic, lie outside VRAM, or never
// have been seen; all work is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/shadow.h"
#include "decoder/model/types.h"
#include "schemas/amd/pte.h"

namespace tg::model {

class Sysmem;

// Where a virtual address leads.
struct VaTarget {
  enum class Kind : uint8_t {
    kNone,     // nowhere, or not known: see Walk::end
    kVram,     // address: offset in VRAM
    kSysmem,   // address: DMA address, which lies in `region` at `region_offset`
    kForeign,  // address: DMA address that belongs to no region of this trace
  };
  Kind kind = Kind::kNone;
  uint64_t address = 0;
  uint32_t region = 0;
  uint64_t region_offset = 0;
  uint64_t contiguous = 0;  // bytes from here to the end of what this entry maps
};

struct WalkStep {
  int level = 0;
  uint64_t table = 0;  // VRAM offset
  uint32_t index = 0;
  bool observed = false;  // else the entry was never seen
  uint64_t raw = 0;
  amd::Pte pte;
  Provenance by;
};

struct Walk {
  enum class End : uint8_t {
    kMapped,
    kNotValid,     // an entry without VALID
    kNotObserved,  // the trace does not show the entry
    kOutOfRange,   // below the start of the address space or above its end
    kBadTable,     // an entry points at a table that cannot be one (host memory, outside VRAM)
    kNoRoot,       // nobody knows where the tables begin
  };
  uint64_t va = 0;
  End end = End::kNoRoot;
  std::array<WalkStep, amd::kPageLevels> steps;
  int depth = 0;  // steps that were taken
  VaTarget target;
};
std::string_view WalkEndText(Walk::End end);

struct Mapping {
  uint64_t va = 0;
  uint64_t size = 0;
  VaTarget target;     // of `va`; contiguous within the mapping
  uint64_t flags = 0;  // raw entry without its address
  int level = 0;       // of the entries: 3 = 4 KiB pages
  uint64_t entries = 0;
  uint64_t first_call = 0;  // writers of its entries
  uint64_t last_call = 0;
};

class Gpuvm {
 public:
  Gpuvm(const Shadow& vram, const Sysmem& sysmem) : vram_(vram), sysmem_(sysmem) {}

  amd::PteFormat format() const { return format_; }
  bool format_assumed() const { return format_assumed_; }
  // Root table in VRAM. Before a CONTEXT0_PAGE_TABLE_BASE write is seen: 0, where AM's always is.
  uint64_t root() const { return root_; }
  bool root_assumed() const { return root_assumed_; }
  uint64_t va_base() const { return va_start_; }

  Walk WalkVa(uint64_t va) const;
  VaTarget Translate(uint64_t va) const { return WalkVa(va).target; }
  // Bytes at a virtual address, as far as known. True if all of them were.
  bool Read(uint64_t va, std::span<uint8_t> out) const;
  std::optional<uint64_t> U64(uint64_t va) const;
  std::optional<uint32_t> U32(uint64_t va) const;
  // "VRAM 0x2634000", "sysmem 3 + 0x100", "DMA 0x1000 (no region)", "not mapped".
  std::string Describe(uint64_t va) const;

  struct MappingList {
    std::vector<Mapping> mappings;  // ascending by va; neighbours that continue each other merged
    bool truncated = false;         // hostile tables: the limit was reached
    uint64_t tables = 0;
    uint64_t unseen_tables = 0;  // pointed at, but no entry of theirs is known
    uint64_t circular = 0;       // entries that point at a table above them: not followed
  };
  // `max_entries` bounds the work: a table that points at itself has 512^4 entries; the default is
  // 64 GiB of 4 KiB pages.
  MappingList Mappings(size_t limit = 100000, uint64_t max_entries = 16u << 20) const;

  // A table that is reached through itself: no driver makes that, and each address below it has
  // no end of aliases.
  struct Cycle {
    uint64_t table = 0;  // VRAM offset
    int level = 0;       // of the entry that closes the circle
    uint32_t index = 0;
    uint64_t call = 0;  // that wrote (or read) the entry; 0: not known
  };
  // The first one; looks at the first 4096 tables.
  std::optional<Cycle> FindCycle() const;

  // The hub's view of memory: physical = MC address - mc_base.
  std::optional<uint64_t> mc_base() const { return mc_base_; }
  std::optional<uint64_t> McToVram(uint64_t mc) const;
  uint64_t xgmi_base() const { return xgmi_base_; }

  // ---- for the device that feeds it ----
  void SetFormat(amd::PteFormat format, bool assumed) {
    format_ = format;
    format_assumed_ = assumed;
  }
  void SetRoot(uint64_t base_register);
  void SetVaStart(uint64_t start_register) { va_start_ = start_register << 12; }
  void SetFbBase(uint64_t fb_base);
  void SetXgmi(std::optional<uint32_t> cntl_region, std::optional<uint64_t> segment_size);
  void SetVramSize(uint64_t size) { vram_size_ = size; }

 private:
  VaTarget TargetOf(const amd::Pte& pte, int level, uint64_t offset) const;

  const Shadow& vram_;
  const Sysmem& sysmem_;
  amd::PteFormat format_ = amd::PteFormat::kGfx11;
  bool format_assumed_ = true;
  uint64_t root_ = 0;
  uint64_t root_register_ = 0;
  bool root_assumed_ = true;
  uint64_t va_start_ = amd::kVaStart;
  std::optional<uint64_t> fb_base_;
  std::optional<uint64_t> mc_base_;
  uint32_t xgmi_region_ = 0;
  uint64_t xgmi_segment_ = 0;
  uint64_t xgmi_base_ = 0;
  uint64_t vram_size_ = 0;  // 0: not known
};

}  // namespace tg::model
