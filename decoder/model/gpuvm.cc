#include "decoder/model/gpuvm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "decoder/model/sysmem.h"

namespace tg::model {
namespace {

constexpr uint64_t kVaSize = 1ull << 48;
// What a read gives that does not reach the card. As an entry it would map 512 GiB; no driver
// writes it.
constexpr uint64_t kOnes = ~0ull;
std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t FlagsOf(uint64_t raw) {
  return raw & ~amd::kPteAddressMask;
}

// Continues `last`, so that one line says both.
bool Continues(const Mapping& last, const Mapping& next) {
  if (last.va + last.size != next.va || last.flags != next.flags || last.level != next.level ||
      last.target.kind != next.target.kind) {
    return false;
  }
  if (last.target.kind == VaTarget::Kind::kSysmem) {
    return last.target.region == next.target.region &&
           last.target.region_offset + last.size == next.target.region_offset;
  }
  return last.target.address + last.size == next.target.address;
}

}  // namespace

std::string_view WalkEndText(Walk::End end) {
  switch (end) {
    case Walk::End::kMapped:
      return "mapped";
    case Walk::End::kNotValid:
      return "not mapped (entry without VALID)";
    case Walk::End::kNotObserved:
      return "entry not observed";
    case Walk::End::kOutOfRange:
      return "outside the address space";
    case Walk::End::kBadTable:
      return "entry is all ones or points at no table in VRAM";
    case Walk::End::kNoRoot:
      break;
  }
  return "root table not known";
}

void Gpuvm::SetRoot(uint64_t base_register) {
  root_register_ = base_register;
  root_ = (base_register & amd::kPteAddressMask) - xgmi_base_;
  root_assumed_ = false;
}

void Gpuvm::SetFbBase(uint64_t fb_base) {
  fb_base_ = fb_base;
  mc_base_ = fb_base + xgmi_base_;
}

void Gpuvm::SetXgmi(std::optional<uint32_t> cntl_region, std::optional<uint64_t> segment_size) {
  if (cntl_region) xgmi_region_ = *cntl_region;
  if (segment_size) xgmi_segment_ = *segment_size;
  xgmi_base_ = xgmi_region_ * xgmi_segment_;
  if (fb_base_) mc_base_ = *fb_base_ + xgmi_base_;
  if (!root_assumed_) SetRoot(root_register_);
}

std::optional<uint64_t> Gpuvm::McToVram(uint64_t mc) const {
  if (!mc_base_ || mc < *mc_base_) return std::nullopt;
  const uint64_t offset = mc - *mc_base_;
  if (vram_size_ != 0 && offset >= vram_size_) return std::nullopt;
  return offset;
}

VaTarget Gpuvm::TargetOf(const amd::Pte& pte, int level, uint64_t offset) const {
  VaTarget target;
  // Not aligned to what it covers: add (see pte.h).
  target.address = pte.address + offset;
  target.contiguous = amd::LevelCover(level) - offset;
  if (!pte.system) {
    target.kind = VaTarget::Kind::kVram;
    target.address -= xgmi_base_;
    return target;
  }
  target.kind = VaTarget::Kind::kForeign;
  if (const auto place = sysmem_.Locate(target.address)) {
    target.kind = VaTarget::Kind::kSysmem;
    target.region = place->region->index;
    target.region_offset = place->offset;
    target.contiguous = std::min(target.contiguous, place->contiguous);
  }
  return target;
}

Walk Gpuvm::WalkVa(uint64_t va) const {
  Walk walk;
  walk.va = va;
  if (va < va_start_ || va - va_start_ >= kVaSize) {
    walk.end = Walk::End::kOutOfRange;
    return walk;
  }
  const uint64_t offset = va - va_start_;
  uint64_t table = root_;
  for (int level = 0; level < amd::kPageLevels; ++level) {
    WalkStep& step = walk.steps[level];
    walk.depth = level + 1;
    step.level = level;
    step.table = table;
    step.index = amd::LevelIndex(level, offset);
    const uint64_t at = table + step.index * 8ull;
    const auto raw = vram_.U64(at);
    if (!raw) {
      walk.end = Walk::End::kNotObserved;
      return walk;
    }
    step.observed = true;
    step.raw = *raw;
    step.pte = amd::DecodePte(format_, level, *raw);
    step.by = vram_.OriginOf(at);
    if (step.raw == kOnes) {
      walk.end = Walk::End::kBadTable;
      return walk;
    }
    if (!step.pte.valid) {
      walk.end = Walk::End::kNotValid;
      return walk;
    }
    if (step.pte.leaf) {
      walk.end = Walk::End::kMapped;
      walk.target = TargetOf(step.pte, level, offset & (amd::LevelCover(level) - 1));
      return walk;
    }
    table = step.pte.address - xgmi_base_;
    if (step.pte.system || (vram_size_ != 0 && table >= vram_size_)) {
      walk.end = Walk::End::kBadTable;
      return walk;
    }
  }
  walk.end = Walk::End::kBadTable;
  return walk;
}

bool Gpuvm::Read(uint64_t va, std::span<uint8_t> out) const {
  bool all = true;
  while (!out.empty()) {
    const VaTarget target = Translate(va);
    const uint64_t to_page_end = 0x1000 - (va & 0xfff);
    const size_t count =
        std::min<uint64_t>(out.size(), target.kind == VaTarget::Kind::kNone
                                           ? to_page_end
                                           : std::max<uint64_t>(target.contiguous, 1));
    if (target.kind == VaTarget::Kind::kVram) {
      all &= vram_.Read(target.address, out.first(count));
    } else if (target.kind == VaTarget::Kind::kSysmem) {
      const Region* region = sysmem_.Find(target.region);
      all &= region && region->shadow.Read(target.region_offset, out.first(count));
    } else {
      all = false;
    }
    out = out.subspan(count);
    va += count;
  }
  return all;
}

std::optional<uint64_t> Gpuvm::U64(uint64_t va) const {
  std::array<uint8_t, 8> bytes{};
  if (!Read(va, bytes)) return std::nullopt;
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::optional<uint32_t> Gpuvm::U32(uint64_t va) const {
  std::array<uint8_t, 4> bytes{};
  if (!Read(va, bytes)) return std::nullopt;
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string Gpuvm::Describe(uint64_t va) const {
  const Walk walk = WalkVa(va);
  switch (walk.target.kind) {
    case VaTarget::Kind::kVram:
      return "VRAM " + Hex(walk.target.address);
    case VaTarget::Kind::kSysmem:
      return "sysmem " + std::to_string(walk.target.region) + " + " +
             Hex(walk.target.region_offset);
    case VaTarget::Kind::kForeign:
      return "DMA " + Hex(walk.target.address) + " (no region)";
    case VaTarget::Kind::kNone:
      break;
  }
  return std::string(WalkEndText(walk.end));
}

Gpuvm::MappingList Gpuvm::Mappings(size_t limit, uint64_t max_entries) const {
  MappingList list;
  struct Frame {
    uint64_t table;
    uint64_t va;
    uint32_t index;
    bool any_known;
  };
  std::array<Frame, amd::kPageLevels> stack;
  int level = 0;
  stack[0] = {root_, va_start_, 0, false};
  uint64_t visited = 0;
  list.tables = 1;
  while (level >= 0) {
    Frame& frame = stack[level];
    if (frame.index == amd::kPageTableEntries) {
      if (!frame.any_known) ++list.unseen_tables;
      --level;
      continue;
    }
    const uint32_t index = frame.index++;
    if (++visited > max_entries) {
      list.truncated = true;
      break;
    }
    const uint64_t at = frame.table + index * 8ull;
    const auto raw = vram_.U64(at);
    if (!raw) continue;
    frame.any_known = true;
    const amd::Pte pte = amd::DecodePte(format_, level, *raw);
    if (!pte.valid || *raw == kOnes) continue;
    const uint64_t va = frame.va + index * amd::LevelCover(level);
    if (pte.leaf) {
      // A range of an address table may end inside what the entry covers.
      const uint64_t cover = amd::LevelCover(level);
      const uint64_t call = vram_.OriginOf(at).call;
      for (uint64_t into = 0; into < cover;) {
        Mapping m;
        m.va = va + into;
        m.target = TargetOf(pte, level, into);
        m.size = std::min(cover - into, m.target.contiguous);
        m.flags = FlagsOf(*raw);
        m.level = level;
        m.entries = into == 0 ? 1 : 0;
        m.first_call = m.last_call = call;
        into += m.size;
        if (!list.mappings.empty() && Continues(list.mappings.back(), m)) {
          Mapping& last = list.mappings.back();
          last.size += m.size;
          last.entries += m.entries;
          last.first_call = std::min(last.first_call, call);
          last.last_call = std::max(last.last_call, call);
        } else if (list.mappings.size() >= limit) {
          list.truncated = true;
          return list;
        } else {
          list.mappings.push_back(m);
        }
        // No region there: the rest of the entry is no better.
        if (m.target.kind == VaTarget::Kind::kForeign) break;
        if (++visited > max_entries) break;
      }
      continue;
    }
    const uint64_t table = pte.address - xgmi_base_;
    if (pte.system || (vram_size_ != 0 && table >= vram_size_)) continue;
    bool above = false;
    for (int i = 0; i <= level; ++i) above |= stack[i].table == table;
    if (above) {
      ++list.circular;
      continue;
    }
    ++list.tables;
    stack[++level] = {table, va, 0, false};
  }
  return list;
}

std::optional<Gpuvm::Cycle> Gpuvm::FindCycle() const {
  constexpr size_t kMaxTables = 4096;
  struct Frame {
    uint64_t table = 0;
    uint32_t index = 0;
  };
  std::array<Frame, amd::kPageLevels> path;
  path[0] = {root_, 0};
  std::set<std::pair<int, uint64_t>> seen;
  for (int level = 0; level >= 0;) {
    Frame& frame = path[level];
    if (frame.index == amd::kPageTableEntries || level + 1 == amd::kPageLevels) {
      --level;
      continue;
    }
    const uint32_t index = frame.index++;
    const uint64_t at = frame.table + index * 8ull;
    const auto raw = vram_.U64(at);
    if (!raw) continue;
    const amd::Pte pte = amd::DecodePte(format_, level, *raw);
    const uint64_t table = pte.address - xgmi_base_;
    if (!pte.valid || pte.leaf || pte.system || (vram_size_ != 0 && table >= vram_size_)) continue;
    for (int i = 0; i <= level; ++i) {
      if (path[i].table == table) return Cycle{table, level, index, vram_.OriginOf(at).call};
    }
    if (seen.size() >= kMaxTables || !seen.emplace(level + 1, table).second) continue;
    path[++level] = {table, 0};
  }
  return std::nullopt;
}

}  // namespace tg::model
