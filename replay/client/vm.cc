#include "replay/client/vm.h"

#include <algorithm>
#include <bit>

#include "schemas/amd/vram_layout.h"

namespace tg::client {
namespace {

constexpr uint64_t kPage = 0x1000;
constexpr uint64_t kHuge = 2 << 20;
constexpr uint64_t kMib = 1 << 20;

constexpr uint64_t RoundUp(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

Vm::Vm(Card& card) : card_(card), format_(amd::PteFormatFor(card.version(amd::kHwGc))) {
  next_table_ = amd::kVramBootSize;
  const uint64_t tables = card.large_bar() ? 0 : RoundUp(card.vram_size() / 512, kMib);
  table_end_ = next_table_ + tables;
  next_vram_ = table_end_;
}

void Vm::WipeRoot() {
  card_.ZeroVram(amd::kVramRootTable, amd::kPageTableSize);
}

uint64_t Vm::TakeVa(uint64_t size) {
  const uint64_t alignment = std::max(std::bit_floor(size), kPage);
  const uint64_t va = RoundUp(next_va_, alignment);
  next_va_ = va + size;
  return va;
}

uint64_t Vm::TakeVram(uint64_t size, uint64_t alignment) {
  const uint64_t at = RoundUp(next_vram_, alignment);
  const uint64_t limit = card_.vram_size() - amd::ReservedVram(card_.version(amd::kHwGc));
  if (at > limit || size > limit - at) Throw(Error::Code::kIo, "out of VRAM");
  next_vram_ = at + size;
  return at;
}

uint64_t Vm::TakeTable() {
  if (card_.large_bar()) return TakeVram(kPage, kPage);
  if (next_table_ + kPage > table_end_) Throw(Error::Code::kIo, "out of page tables");
  next_table_ += kPage;
  return next_table_ - kPage;
}

void Vm::Put(uint64_t table, int level, uint64_t relative, const amd::Pte& pte) {
  card_.WriteVram64(table + 8ull * amd::LevelIndex(level, relative),
                    amd::EncodePte(format_, level, pte));
}

uint64_t Vm::TableAt(int level, uint64_t relative) {
  uint64_t table = amd::kVramRootTable;
  for (int above = 0; above < level; above++) {
    const uint64_t slot = table + 8ull * amd::LevelIndex(above, relative);
    const amd::Pte pte = amd::DecodePte(format_, above, card_.ReadVram64(slot));
    if (pte.valid) {
      table = pte.address;
      continue;
    }
    amd::Pte down;
    down.valid = true;
    down.address = TakeTable();
    card_.ZeroVram(down.address, kPage);
    Put(table, above, relative, down);
    table = down.address;
  }
  return table;
}

// The driver looks before it maps: down to the first entry that is not valid.
void Vm::CheckUnmapped(uint64_t va, uint64_t size) {
  const uint64_t first = va - amd::kVaStart;
  for (uint64_t at = first; at < first + size;) {
    uint64_t table = amd::kVramRootTable;
    int level = 0;
    for (;; level++) {
      const uint64_t slot = table + 8ull * amd::LevelIndex(level, at);
      const amd::Pte pte = amd::DecodePte(format_, level, card_.ReadVram64(slot));
      if (!pte.valid) break;
      if (pte.leaf || level == amd::kPageLeafLevel)
        Throw(Error::Code::kBadInput, "a page is mapped already");
      table = pte.address;
    }
    const uint64_t cover = amd::LevelCover(level);
    at = (at / cover + 1) * cover;
  }
}

Mapping Vm::MapHost(uint64_t size) {
  Mapping mapping;
  mapping.size = RoundUp(size, kPage);
  mapping.va = TakeVa(mapping.size);
  mapping.host = card_.port().MapHost(mapping.size);
  CheckUnmapped(mapping.va, mapping.size);
  amd::Pte pte;
  pte.valid = pte.system = pte.snooped = pte.read = pte.write = pte.execute = pte.leaf = true;
  pte.mtype = amd::kMtypeUncached;
  uint64_t table = 0;
  for (uint64_t at = 0; at < mapping.size; at += kPage) {
    const uint64_t relative = mapping.va - amd::kVaStart + at;
    if (at == 0 || relative % kHuge == 0) table = TableAt(amd::kPageLeafLevel, relative);
    pte.address = mapping.host->pages()[at / kPage];
    Put(table, amd::kPageLeafLevel, relative, pte);
  }
  FlushTlbs();
  return mapping;
}

Mapping Vm::MapVram(uint64_t size, bool zero) {
  Mapping mapping;
  mapping.size = RoundUp(size, size >= 8 * kMib ? kHuge : kPage);
  mapping.va = TakeVa(mapping.size);
  mapping.vram = TakeVram(mapping.size, mapping.size >= kHuge ? kHuge : kPage);
  if (zero) card_.ZeroVram(mapping.vram, mapping.size);
  CheckUnmapped(mapping.va, mapping.size);
  amd::Pte pte;
  pte.valid = pte.read = pte.write = pte.execute = pte.leaf = true;
  for (uint64_t at = 0; at < mapping.size;) {
    const uint64_t relative = mapping.va - amd::kVaStart + at;
    const bool huge = relative % kHuge == 0 && mapping.size - at >= kHuge;
    const int level = huge ? amd::kPageLeafLevel - 1 : amd::kPageLeafLevel;
    pte.address = mapping.vram + at;
    pte.frag = huge ? 9 : 0;
    Put(TableAt(level, relative), level, relative, pte);
    at += huge ? kHuge : kPage;
  }
  FlushTlbs();
  return mapping;
}

void Vm::Unmap(const Mapping& mapping) {
  for (uint64_t at = 0; at < mapping.size;) {
    const uint64_t relative = mapping.va - amd::kVaStart + at;
    uint64_t table = amd::kVramRootTable;
    for (int level = 0;; level++) {
      const uint64_t slot = table + 8ull * amd::LevelIndex(level, relative);
      const amd::Pte pte = amd::DecodePte(format_, level, card_.ReadVram64(slot));
      if (!pte.valid) Throw(Error::Code::kBadInput, "a page is not mapped");
      if (!pte.leaf && level < amd::kPageLeafLevel) {
        table = pte.address;
        continue;
      }
      amd::Pte gone;
      gone.read = gone.write = gone.execute = gone.leaf = true;
      Put(table, level, relative, gone);
      at += amd::LevelCover(level);
      break;
    }
  }
}

void Vm::FlushTlbs() {
  card_.FlushHdp();
  if (gc_hub_) FlushTlb("GC");
  card_.FlushHdp();
  card_.Wait([this] { return card_.Get("regMMVM_INVALIDATE_ENG17_SEM") & 1; },
             "semaphore of the MM hub's invalidation engine");
  FlushTlb("MM");
  card_.Set("regMMVM_INVALIDATE_ENG17_SEM", 0);
  card_.Update("regMMVM_L2_BANK_SELECT_RESERVED_CID2",
               {{"reserved_cache_private_invalidation", 1}});
  card_.Get("regMMVM_L2_BANK_SELECT_RESERVED_CID2");
}

void Vm::FlushTlb(const char* hub) {
  const std::string engine = std::string("reg") + hub + "VM_INVALIDATE_ENG17_";
  card_.Set(engine + "REQ", {{"per_vmid_invalidate_req", 1},
                             {"invalidate_l2_ptes", 1},
                             {"invalidate_l2_pde0", 1},
                             {"invalidate_l2_pde1", 1},
                             {"invalidate_l2_pde2", 1},
                             {"invalidate_l1_ptes", 1}});
  card_.Wait([&] { return card_.Get(engine + "ACK") & 1; }, "TLB flush");
}

}  // namespace tg::client
