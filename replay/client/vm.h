// The client's memory manager: GPU addresses, VRAM, and the page tables written into it, in
// tinygrad's manner: host memory in 4 KiB pages, VRAM in the largest pages that fit, entry by
// entry.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replay/client/card.h"
#include "schemas/amd/pte.h"

namespace tg::client {

// A piece of GPU address space with memory behind it.
struct Mapping {
  uint64_t va = 0;
  uint64_t size = 0;
  uint64_t vram = 0;                 // offset in VRAM; host memory: unused
  std::unique_ptr<HostMemory> host;  // nullptr: VRAM
};

class Vm {
 public:
  explicit Vm(Card& card);

  // The root table is wiped in every session.
  void WipeRoot();
  Mapping MapHost(uint64_t size);
  Mapping MapVram(uint64_t size, bool zero);
  // Clears the entries of a range, as the driver does: no TLB flush.
  void Unmap(const Mapping& mapping);
  // Flushes after a mapping. The GC hub is left out until it is set up.
  void set_gc_hub(bool on) { gc_hub_ = on; }
  void FlushTlbs();

 private:
  uint64_t TakeVa(uint64_t size);
  uint64_t TakeVram(uint64_t size, uint64_t alignment);
  uint64_t TakeTable();
  // Table of `level` on the way to `relative`, made if need be.
  uint64_t TableAt(int level, uint64_t relative);
  void Put(uint64_t table, int level, uint64_t relative, const amd::Pte& pte);
  void CheckUnmapped(uint64_t va, uint64_t size);
  void FlushTlb(const char* hub);

  Card& card_;
  amd::PteFormat format_;
  bool gc_hub_ = false;
  uint64_t next_va_ = amd::kVaStart;
  uint64_t next_vram_ = 0;
  uint64_t next_table_ = 0;
  uint64_t table_end_ = 0;  // small BAR: tables lie in a part that the BAR shows
};

}  // namespace tg::client
