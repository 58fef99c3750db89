#include "replay/sim/gpu.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "replay/sim/cp.h"
#include "replay/sim/discovery_blob.h"
#include "replay/sim/gpuvm.h"
#include "replay/sim/ih.h"
#include "replay/sim/nbio.h"
#include "replay/sim/psp.h"
#include "replay/sim/sdma_engine.h"
#include "replay/sim/smu.h"
#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr uint32_t kVramBar = 0, kDoorbellBar = 2, kRegisterBar = 5;
// What a configuration read gets from a function that asks to be retried (PCIe base specification,
// configuration request retry status with software visibility).
constexpr uint32_t kRetryVendor = 0xffff0001;

std::vector<amd::IpBlock> Blocks(const Asic& asic) {
  std::vector<amd::IpBlock> blocks;
  for (const AsicIp& ip : asic.ips) {
    amd::IpBlock block;
    block.hw_id = ip.hw_id;
    block.instance = ip.instance;
    block.version = ip.version;
    block.bases.assign(ip.bases.begin(), ip.bases.end());
    blocks.push_back(std::move(block));
  }
  return blocks;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::Create(const GpuOptions& options) {
  const Asic& asic = options.asic ? *options.asic : AllAsics().front();
  const uint64_t bar0 = options.bar0_size ? options.bar0_size : asic.bar0_full;
  if (!std::has_single_bit(bar0) || bar0 < (1 << 20) || bar0 > asic.bar0_full)
    return Fail(Error::Code::kUsage, "BAR 0 must be a power of two of at least 1 MiB and at most " +
                                         std::to_string(asic.bar0_full >> 20) + " MiB");
  auto vram = Vram::Create(asic.vram_mib << 20);
  if (!vram) return tl::unexpected<Error>(vram.error());
  const std::vector<amd::IpBlock> blocks = Blocks(asic);
  return std::unique_ptr<Gpu>(new Gpu(asic, blocks, bar0, *std::move(vram)));
}

Gpu::Gpu(const Asic& asic, std::span<const amd::IpBlock> ips, uint64_t bar0_size, Vram vram)
    : card_(asic, ips, bar0_size, std::move(vram)), doorbells_(asic.bar2_size) {
  psp_ = std::make_unique<Psp>(card_);
  smu_ = std::make_unique<Smu>(card_, *psp_, [this] {
    card_.counters.resets++;
    PowerOn();
  });
  nbio_ = std::make_unique<Nbio>(card_);
  ih_ = std::make_unique<Ih>(card_);
  vm_ = std::make_unique<GpuVm>(card_, *ih_);
  sdma_ = std::make_unique<SdmaEngine>(card_, *vm_, *ih_, *psp_);
  cp_ = std::make_unique<Cp>(card_, *vm_, *ih_, *psp_);
  const Register soft_reset = card_.regs.Define("regGRBM_SOFT_RESET");
  card_.regs.OnWrite(soft_reset, [this, soft_reset](uint32_t) {
    if (soft_reset.Field("soft_reset_cp") || soft_reset.Field("soft_reset_cpc") ||
        soft_reset.Field("soft_reset_gfx"))
      cp_->StopAll();
    if (soft_reset.Field("soft_reset_sdma0")) sdma_->Reset();
  });
  PowerOn();
}

Gpu::~Gpu() = default;

// VRAM loses its content, then the card's firmware leaves the discovery table there again.
void Gpu::PowerOn() {
  card_.regs.Reset();
  card_.fatal = false;
  psp_->Reset();
  smu_->Reset();
  sdma_->Reset();
  cp_->Reset();
  std::fill(doorbells_.begin(), doorbells_.end(), 0);
  if (!card_.vram.Clear()) return;  // keeps the old content: the next boot sets it up all the same
  const std::vector<uint8_t> discovery = BuildDiscovery(card_.asic);
  const auto table = card_.vram.At(card_.vram.size() - kDiscoveryOffset, discovery.size());
  if (!table.empty()) std::memcpy(table.data(), discovery.data(), discovery.size());
}

void Gpu::Reset() {
  card_.counters.resets++;
  card_.pci.Reset();
  PowerOn();
}

uint32_t Gpu::CfgRead(uint64_t offset, uint64_t size) {
  const uint32_t mask = size >= 4 ? ~0u : (1u << 8 * size) - 1;
  if (card_.gone) return mask;
  if (card_.hangs.Strike(HangKind::kConfigRetry))
    return offset < 4 ? kRetryVendor >> 8 * offset & mask : mask;
  return card_.pci.Read(offset, size);
}

void Gpu::CfgWrite(uint64_t offset, uint64_t size, uint32_t value) {
  if (!card_.gone) card_.pci.Write(offset, size, value);
}

void Gpu::BarRead(uint32_t bar, uint64_t offset, std::span<uint8_t> out) {
  if (card_.gone || !card_.pci.memory_enabled()) {
    card_.counters.mmio_dropped++;
    std::memset(out.data(), 0xff, out.size());
    return;
  }
  switch (bar) {
    case kVramBar:
      ReadVram(offset, out);
      return;
    case kRegisterBar:
      ReadRegisters(offset, out);
      return;
    case kDoorbellBar:
      std::memcpy(out.data(), doorbells_.data() + offset, out.size());
      return;
    default:
      std::memset(out.data(), 0xff, out.size());
  }
}

void Gpu::BarWrite(uint32_t bar, uint64_t offset, std::span<const uint8_t> in) {
  if (card_.gone || !card_.pci.memory_enabled()) {
    card_.counters.mmio_dropped++;
    return;
  }
  switch (bar) {
    case kVramBar:
      WriteVram(offset, in);
      return;
    case kRegisterBar:
      WriteRegisters(offset, in);
      return;
    case kDoorbellBar:
      WriteDoorbells(offset, in);
      return;
    default:
      return;
  }
}

// A BAR may be larger than the memory behind it.
void Gpu::ReadVram(uint64_t offset, std::span<uint8_t> out) {
  const uint64_t there = card_.vram.size() > offset ? card_.vram.size() - offset : 0;
  const auto memory = card_.vram.At(offset, std::min<uint64_t>(there, out.size()));
  if (!memory.empty()) std::memcpy(out.data(), memory.data(), memory.size());
  const auto beyond = out.subspan(memory.size());
  if (!beyond.empty()) std::memset(beyond.data(), 0xff, beyond.size());
}

void Gpu::WriteVram(uint64_t offset, std::span<const uint8_t> in) {
  const uint64_t there = card_.vram.size() > offset ? card_.vram.size() - offset : 0;
  const auto memory = card_.vram.At(offset, std::min<uint64_t>(there, in.size()));
  if (!memory.empty()) std::memcpy(memory.data(), in.data(), memory.size());
}

void Gpu::ReadRegisters(uint64_t offset, std::span<uint8_t> out) {
  for (size_t done = 0; done < out.size();) {
    const uint64_t at = offset + done;
    const size_t skip = at % 4;
    const size_t count = std::min<size_t>(4 - skip, out.size() - done);
    const uint32_t value = card_.regs.Read(at / 4);
    std::memcpy(&out[done], reinterpret_cast<const uint8_t*>(&value) + skip, count);
    done += count;
  }
}

void Gpu::WriteRegisters(uint64_t offset, std::span<const uint8_t> in) {
  for (size_t done = 0; done < in.size();) {
    const uint64_t at = offset + done;
    const size_t skip = at % 4;
    const size_t count = std::min<size_t>(4 - skip, in.size() - done);
    // Bytes that a narrow access leaves out keep their value.
    uint32_t value = count == 4 ? 0 : card_.regs.EngineRead(at / 4);
    std::memcpy(reinterpret_cast<uint8_t*>(&value) + skip, &in[done], count);
    card_.regs.Write(at / 4, value);
    done += count;
  }
}

// A write that covers both halves of a slot rings once, with both; any other rings with what the
// slot then holds.
void Gpu::WriteDoorbells(uint64_t offset, std::span<const uint8_t> in) {
  if (in.empty()) return;
  std::memcpy(doorbells_.data() + offset, in.data(), in.size());
  for (uint64_t slot = offset & ~7ull; slot < offset + in.size(); slot += 8) RingDoorbell(slot);
  Run();
}

void Gpu::RingDoorbell(uint64_t slot) {
  card_.counters.doorbells++;
  if (card_.hangs.Strike(HangKind::kDoorbellLost)) return;
  if (const HangRule* rule = card_.hangs.Strike(HangKind::kRas)) nbio_->FatalError(rule->other);
  const uint64_t value = LoadLe<uint64_t>(&doorbells_[slot]);
  const auto dword = static_cast<uint32_t>(slot / 4);
  switch (nbio_->RouteDoorbell(dword)) {
    case Nbio::Route::kGated:
      card_.counters.doorbells_gated++;
      return;
    case Nbio::Route::kSdma:
      if (sdma_->Claims(dword)) return sdma_->Doorbell(value);
      break;
    case Nbio::Route::kCompute:
      if (CpQueue* queue = cp_->Claims(dword)) return queue->Doorbell(value);
      break;
  }
  card_.counters.doorbells_unclaimed++;
}

Work Gpu::Run() {
  Budget budget;
  const Counters& counters = card_.counters;
  for (;;) {
    // One engine may wait for what the other writes: go on as long as either finishes packets.
    const uint64_t before = counters.sdma_packets + counters.compute_packets;
    const Work sdma = sdma_->Run(budget);
    const Work cp = cp_->Run(budget);
    if (sdma == Work::kRunnable || cp == Work::kRunnable) return Work::kRunnable;
    if (sdma != Work::kWaiting && cp != Work::kWaiting)
      return sdma == Work::kStuck || cp == Work::kStuck ? Work::kStuck : Work::kIdle;
    if (counters.sdma_packets + counters.compute_packets == before) return Work::kWaiting;
    if (!budget.left()) return Work::kRunnable;
  }
}

bool Gpu::pending() const {
  const auto open = [](Work work) { return work == Work::kRunnable || work == Work::kWaiting; };
  return open(sdma_->state()) || open(cp_->state());
}

}  // namespace tg::sim
