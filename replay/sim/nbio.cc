#include "replay/sim/nbio.h"

#include <string>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

// Fixed dword indices, the same on all AMD cards.
constexpr uint32_t kMmIndex = amd::kMmIndexByte / 4;
constexpr uint32_t kMmData = amd::kMmDataByte / 4;
constexpr uint32_t kMmIndexHi = amd::kMmIndexHiByte / 4;
constexpr uint32_t kConfigMemsize = amd::kConfigMemsizeByte / 4;
constexpr uint32_t kVramFlag = 0x80000000;

// Reset value of REMAP_HDP_MEM_FLUSH_CNTL: byte address of HDP_MEM_COHERENCY_FLUSH_CNTL.
constexpr uint32_t kHdpFlushByte = 0x385c;

// First doorbell (dword index) of the SDMA engines: AMDGPU_NAVI10_DOORBELL_sDMA_ENGINE0 * 2.
constexpr uint32_t kSdmaDoorbells = 512;

}  // namespace

Nbio::Nbio(Card& card) : card_(card) {
  DefineVramWindow();
  DefineRegisterWindows();
  DefineHdp();
  DefineDoorbells();
  card.regs.DefineAt(kConfigMemsize, static_cast<uint32_t>(card.asic.vram_mib));
  doorbell_int_ = card.regs.Define("regBIF_BX0_BIF_DOORBELL_INT_CNTL");
  card.regs.OnWrite(doorbell_int_, [this](uint32_t) { ClearErrors(); });
}

void Nbio::DefineVramWindow() {
  mm_index_ = card_.regs.DefineAt(kMmIndex);
  mm_data_ = card_.regs.DefineAt(kMmData);
  mm_index_hi_ = card_.regs.DefineAt(kMmIndexHi);
  card_.regs.OnRead(mm_data_, [this](uint32_t) { return VramWindowRead(); });
  card_.regs.OnWrite(mm_data_, [this](uint32_t value) { VramWindowWrite(value); });
}

// Index bit 31 set: VRAM, whose address bits above 30 stand in the high register. Clear: a
// register.
uint32_t Nbio::VramWindowRead() const {
  const uint32_t index = mm_index_.value();
  if (!(index & kVramFlag)) return index / 4 == kMmData ? 0 : card_.regs.Read(index / 4);
  const uint64_t address = static_cast<uint64_t>(mm_index_hi_.value()) << 31 | (index & ~kVramFlag);
  const auto word = card_.vram.At(address & ~3ull, 4);
  return word.empty() ? ~0u : LoadLe<uint32_t>(word.data());
}

void Nbio::VramWindowWrite(uint32_t value) {
  const uint32_t index = mm_index_.value();
  if (!(index & kVramFlag)) {
    if (index / 4 != kMmData) card_.regs.Write(index / 4, value);
    return;
  }
  const uint64_t address = static_cast<uint64_t>(mm_index_hi_.value()) << 31 | (index & ~kVramFlag);
  const auto word = card_.vram.At(address & ~3ull, 4);
  if (!word.empty()) StoreLe(word.data(), value);
}

void Nbio::DefineRegisterWindows() {
  RegisterFile& regs = card_.regs;
  rsmu_index_ = regs.Define("regBIF_BX_PF0_RSMU_INDEX");
  const Register rsmu_data = regs.Define("regBIF_BX_PF0_RSMU_DATA");
  // A window that points at a window's data register would call itself.
  const auto through = [rsmu_data](uint64_t dword) {
    return dword != rsmu_data.dword() && dword != kMmData;
  };
  regs.OnRead(rsmu_data, [this, through](uint32_t) {
    const uint32_t dword = rsmu_index_.value() / 4;
    return through(dword) ? card_.regs.Read(dword) : 0;
  });
  regs.OnWrite(rsmu_data, [this, through](uint32_t value) {
    const uint32_t dword = rsmu_index_.value() / 4;
    if (through(dword)) card_.regs.Write(dword, value);
  });

  pcie_index_ = regs.Define("regBIF_BX0_PCIE_INDEX2");
  pcie_index_hi_ = regs.Define("regBIF_BX0_PCIE_INDEX2_HI");
  const Register pcie_data = regs.Define("regBIF_BX0_PCIE_DATA2");
  const auto target = [this, through, pcie_data]() -> uint64_t {
    // The high part names another die; these cards have one.
    const uint32_t dword = pcie_index_.value() / 4;
    const bool ok = pcie_index_hi_.value() == 0 && dword != pcie_data.dword() && through(dword);
    return ok ? dword : UINT64_MAX;
  };
  regs.OnRead(pcie_data, [this, target](uint32_t) {
    const uint64_t dword = target();
    return dword == UINT64_MAX ? ~0u : card_.regs.Read(dword);
  });
  regs.OnWrite(pcie_data, [this, target](uint32_t value) {
    if (const uint64_t dword = target(); dword != UINT64_MAX) card_.regs.Write(dword, value);
  });
}

void Nbio::DefineHdp() {
  RegisterFile& regs = card_.regs;
  regs.Define("regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", kHdpFlushByte);
  const Register flush = regs.DefineAt(kHdpFlushByte / 4);
  regs.OnWrite(flush, [this](uint32_t) { card_.counters.hdp_flushes++; });
  // The engines' own way: request bits come back as done bits.
  const Register request = regs.Define("regBIF_BX_PF0_GPU_HDP_FLUSH_REQ");
  Register done = regs.Define("regBIF_BX_PF0_GPU_HDP_FLUSH_DONE");
  regs.OnWrite(request, [this, done](uint32_t value) mutable {
    card_.counters.hdp_flushes++;
    done.Set(value);
  });
  regs.SafeForEngines(request);
}

void Nbio::DefineDoorbells() {
  RegisterFile& regs = card_.regs;
  const bool gfx12 = card_.Version(amd::kHwGc).major >= 12;
  const std::string prefix = gfx12 ? "regGDC_S2A0_S2A_DOORBELL_ENTRY_" : "regS2A_DOORBELL_ENTRY_";
  aperture_ = regs.Define("regRCC_DEV0_EPF0_RCC_DOORBELL_APER_EN");
  compute_entry_ = regs.Define(prefix + "0_CTRL");
  sdma_entry_ = regs.Define(prefix + "2_CTRL");
}

void Nbio::FatalError(bool athub) {
  doorbell_int_.SetField(
      athub ? "ras_athub_err_event_interrupt_status" : "ras_cntlr_interrupt_status", 1);
  card_.fatal = true;
}

void Nbio::ClearErrors() {
  for (const char* error : {"ras_cntlr_interrupt", "ras_athub_err_event_interrupt"}) {
    const std::string name = error;
    if (doorbell_int_.Field(name + "_clear")) doorbell_int_.SetField(name + "_status", 0);
    doorbell_int_.SetField(name + "_clear", 0);
  }
}

Nbio::Route Nbio::RouteDoorbell(uint32_t dword) const {
  if (!(aperture_.value() & 1)) return Route::kGated;
  if (dword >= kSdmaDoorbells) {
    const bool enabled = sdma_entry_.Field("s2a_doorbell_port2_enable");
    const uint32_t first = sdma_entry_.Field("s2a_doorbell_port2_range_offset");
    return enabled && dword >= first ? Route::kSdma : Route::kGated;
  }
  return compute_entry_.Field("s2a_doorbell_port0_enable") ? Route::kCompute : Route::kGated;
}

}  // namespace tg::sim
