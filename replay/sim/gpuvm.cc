#include "replay/sim/gpuvm.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr uint64_t kPage = 0x1000;
constexpr int kEngines = 18;  // invalidation engines of a hub

// Fault status (kernel: gmc_v11_0.c prints them; walker error numbers: 1 range, 2-4 the level whose
// entry was not valid, counted from PDE0 up).
constexpr uint8_t kWalkerRange = 1;
constexpr uint8_t kNotValid = 1, kNoRead = 2, kNoWrite = 4;

bool Aligned(const uint8_t* p, size_t to) {
  return reinterpret_cast<uintptr_t>(p) % to == 0;
}

}  // namespace

GpuVm::GpuVm(Card& card, Ih& ih)
    : card_(card), ih_(ih), format_(amd::PteFormatFor(card.Version(amd::kHwGc))) {
  DefineHub("regMM");
  DefineHub("regGC");
  DefineFaults();
}

void GpuVm::DefineHub(const char* prefix) {
  RegisterFile& regs = card_.regs;
  const std::string hub = prefix;
  const uint64_t last_mib = (kFbBase >> 20) + card_.asic.vram_mib - 1;
  regs.Define(hub + "MC_VM_FB_LOCATION_BASE", static_cast<uint32_t>(kFbBase >> 24));
  regs.Define(hub + "MC_VM_FB_LOCATION_TOP", static_cast<uint32_t>(last_mib >> 4));
  for (int i = 0; i < kEngines; i++) {
    const std::string engine = hub + "VM_INVALIDATE_ENG" + std::to_string(i);
    const Register request = regs.Define(engine + "_REQ");
    const Register semaphore = regs.Define(engine + "_SEM");
    Register ack = regs.Define(engine + "_ACK");
    regs.OnWrite(request, [this, ack](uint32_t value) mutable {
      card_.counters.tlb_flushes++;
      const bool stuck =
          card_.hangs.Strike(HangKind::kTlbStuck, [](const HangRule& r) { return !r.other; });
      ack.Set(stuck ? 0 : value & 0xffff);  // per_vmid_invalidate_req: done at once
    });
    // Reading 1 takes the semaphore; writing 0 gives it back. The card itself never holds it.
    regs.OnRead(semaphore, [this](uint32_t) {
      return card_.hangs.Strike(HangKind::kTlbStuck, [](const HangRule& r) { return r.other; })
                 ? 0u
                 : 1u;
    });
  }
  if (hub != "regGC") return;
  cntl_ = regs.Define("regGCVM_CONTEXT0_CNTL");
  const std::string table = "regGCVM_CONTEXT0_PAGE_TABLE_";
  base_lo_ = regs.Define(table + "BASE_ADDR_LO32");
  base_hi_ = regs.Define(table + "BASE_ADDR_HI32");
  start_lo_ = regs.Define(table + "START_ADDR_LO32");
  start_hi_ = regs.Define(table + "START_ADDR_HI32");
  end_lo_ = regs.Define(table + "END_ADDR_LO32");
  end_hi_ = regs.Define(table + "END_ADDR_HI32");
  dummy_lo_ = regs.Define("regGCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32");
  dummy_hi_ = regs.Define("regGCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32");
}

void GpuVm::DefineFaults() {
  RegisterFile& regs = card_.regs;
  const bool gfx12 = card_.Version(amd::kHwGc).major >= 12;
  const std::string fault = "regGCVM_L2_PROTECTION_FAULT_";
  fault_status_ = regs.Define(fault + (gfx12 ? "STATUS_LO32" : "STATUS"));
  if (gfx12) regs.Define(fault + "STATUS_HI32");
  fault_lo_ = regs.Define(fault + "ADDR_LO32");
  fault_hi_ = regs.Define(fault + "ADDR_HI32");
  fault_cntl_ = regs.Define(fault + "CNTL");
  regs.OnWrite(fault_cntl_, [this](uint32_t value) {
    if (!(value & 1)) return;  // clear_protection_fault_status_addr
    fault_status_.Set(0);
    fault_lo_.Set(0);
    fault_hi_.Set(0);
  });
}

uint64_t GpuVm::Pair(const Register& low, const Register& high) const {
  return static_cast<uint64_t>(high.value()) << 32 | low.value();
}

Translation GpuVm::Walk(uint64_t va, bool write) const {
  const auto fault = [](uint8_t walker, uint8_t permissions) {
    Translation none;
    none.bytes = 1;
    none.walker_error = walker;
    none.permissions = permissions;
    return none;
  };
  // The frame buffer aperture is not translated.
  const uint64_t vram = card_.vram.size();
  if (va >= kFbBase && va - kFbBase < vram)
    return {Translation::Kind::kVram, va - kFbBase, vram - (va - kFbBase)};

  const uint64_t start = Pair(start_lo_, start_hi_) << 12;
  const uint64_t end = Pair(end_lo_, end_hi_) << 12 | (kPage - 1);
  const bool enabled = cntl_.value() & 1;
  if (!enabled || va < start || va > end) return fault(kWalkerRange, kNotValid);
  const uint64_t relative = va - start;
  if (relative >> 48) return fault(kWalkerRange, kNotValid);

  uint64_t table = Pair(base_lo_, base_hi_) & ~0xfffull;
  for (int level = 0; level < amd::kPageLevels; level++) {
    const uint64_t index = amd::LevelIndex(level, relative);
    const auto entry = card_.vram.At(table + index * 8, 8);
    const bool leaf_level = level == amd::kPageLeafLevel;
    const uint8_t walker = leaf_level ? 0 : static_cast<uint8_t>(4 - level);
    if (entry.empty()) return fault(walker, kNotValid);
    const amd::Pte pte = amd::DecodePte(format_, level, LoadLe<uint64_t>(entry.data()));
    if (!pte.valid) return fault(walker, kNotValid | (write ? kNoWrite : kNoRead));
    if (!pte.leaf && !leaf_level) {
      table = pte.address;
      continue;
    }
    if (write ? !pte.write : !pte.read) return fault(0, write ? kNoWrite : kNoRead);
    const uint64_t cover = amd::LevelCover(level);
    const uint64_t offset = relative & (cover - 1);
    return {pte.system ? Translation::Kind::kHost : Translation::Kind::kVram, pte.address + offset,
            cover - offset};
  }
  return fault(0, kNotValid);
}

void GpuVm::ReportFault(uint64_t va, bool write, VmClient client, const Translation& translation) {
  card_.counters.page_faults++;
  const uint64_t page = va >> 12;
  // The first fault stays until it is cleared; later ones only leave their mark.
  if (fault_status_.value() == 0) {
    fault_status_.SetField("walker_error", translation.walker_error);
    fault_status_.SetField("permission_faults", translation.permissions);
    fault_status_.SetField("mapping_error", translation.walker_error != 0);
    fault_status_.SetField("cid", static_cast<uint32_t>(client));
    fault_status_.SetField("rw", write);
    fault_lo_.Set(static_cast<uint32_t>(page));
    fault_hi_.Set(static_cast<uint32_t>(page >> 32) & 0xf);
  } else {
    fault_status_.SetField("more_faults", 1);
  }
  if (!cntl_.Field("valid_protection_fault_enable_interrupt")) return;
  IhEntry entry;
  entry.client = IhClient::kGfx;
  entry.source = IhSource::kUtcl2Fault;
  entry.context = {static_cast<uint32_t>(page), static_cast<uint32_t>(page >> 32) & 0xf, 0, 0};
  ih_.Push(entry);
}

void GpuVm::Inject(uint64_t va, bool write, VmClient client) {
  Translation none;
  none.permissions = static_cast<uint8_t>(kNotValid | (write ? kNoWrite : kNoRead));
  ReportFault(va, write, client, none);
}

GpuVm::Run GpuVm::DummyPage(uint64_t va) {
  const uint64_t within = va & (kPage - 1);
  Run run;
  run.bytes = kPage - within;
  if (!cntl_.Field("valid_protection_fault_enable_default")) return run;
  const auto page = card_.vram.At(Pair(dummy_lo_, dummy_hi_) << 12, kPage);
  if (!page.empty()) run.data = page.data() + within;
  return run;
}

GpuVm::Run GpuVm::HostRun(uint64_t dma, uint64_t bytes) {
  Run run;
  run.bytes = std::min(bytes, kPage - (dma & (kPage - 1)));
  if (!card_.pci.bus_master() || card_.gone) {
    card_.counters.dma_blocked++;
    return run;
  }
  const HostMemory::Run memory = card_.host.At(dma);
  if (!memory.data) {
    card_.counters.dma_unanswered++;
    return run;
  }
  run.data = memory.data;
  run.bytes = std::min(bytes, memory.bytes);
  return run;
}

GpuVm::Run GpuVm::Access(uint64_t va, bool write, VmClient client) {
  const auto rule = card_.hangs.empty()
                        ? nullptr
                        : card_.hangs.Strike(HangKind::kPageFault, [va](const HangRule& r) {
                            return r.va && (*r.va ^ va) < kPage;
                          });
  Translation where = Walk(va, write);
  if (rule) {
    where = {};
    where.permissions = static_cast<uint8_t>(kNotValid | (write ? kNoWrite : kNoRead));
  }
  if (where.kind == Translation::Kind::kFault) {
    ReportFault(va, write, client, where);
    Run run = DummyPage(va);
    run.halt = rule && rule->stop;
    return run;
  }
  if (where.kind == Translation::Kind::kHost) return HostRun(where.address, where.bytes);
  Run run;
  const auto first = card_.vram.At(where.address, 1);
  run.bytes = where.bytes;
  if (!first.empty()) {
    run.data = first.data();
    run.bytes = std::min(where.bytes, card_.vram.size() - where.address);
  }
  return run;
}

bool GpuVm::Read(uint64_t va, std::span<uint8_t> out, VmClient client) {
  while (!out.empty()) {
    const Run run = Access(va, false, client);
    if (run.halt) return false;
    const size_t count = std::min<uint64_t>(run.bytes, out.size());
    if (run.data) {
      std::memcpy(out.data(), run.data, count);
    } else {
      std::memset(out.data(), 0xff, count);
    }
    out = out.subspan(count);
    va += count;
  }
  return true;
}

bool GpuVm::Write(uint64_t va, std::span<const uint8_t> in, VmClient client) {
  while (!in.empty()) {
    const Run run = Access(va, true, client);
    if (run.halt) return false;
    const size_t count = std::min<uint64_t>(run.bytes, in.size());
    if (run.data) std::memcpy(run.data, in.data(), count);
    in = in.subspan(count);
    va += count;
  }
  return true;
}

bool GpuVm::Load32(uint64_t va, uint32_t& value, VmClient client) {
  const Run run = Access(va, false, client);
  if (run.halt) return false;
  if (!run.data) {
    value = ~0u;
  } else if (run.bytes >= 4 && Aligned(run.data, 4)) {
    value = std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(run.data))
                .load(std::memory_order_acquire);
  } else {
    return Read(va, {reinterpret_cast<uint8_t*>(&value), sizeof value}, client);
  }
  return true;
}

bool GpuVm::Store(uint64_t va, uint64_t value, uint32_t bytes, VmClient client) {
  const Run run = Access(va, true, client);
  if (run.halt) return false;
  if (!run.data) return true;
  if (bytes == 8 && run.bytes >= 8 && Aligned(run.data, 8)) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(run.data))
        .store(value, std::memory_order_release);
  } else if (bytes == 4 && run.bytes >= 4 && Aligned(run.data, 4)) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(run.data))
        .store(static_cast<uint32_t>(value), std::memory_order_release);
  } else {
    return Write(va, {reinterpret_cast<const uint8_t*>(&value), bytes}, client);
  }
  return true;
}

}  // namespace tg::sim
