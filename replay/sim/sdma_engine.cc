#include "replay/sim/sdma_engine.h"

#include <cstring>
#include <string>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr VmClient kClient = VmClient::kSdma0;
constexpr uint64_t kFirstLook = 128;  // bytes: longer than any packet without data of its own

// Ops, as the table of schemas/amd/sdma_packets.cc has them.
enum Op : uint16_t {
  kNop = 0,
  kCopy = 1,
  kWrite = 2,
  kIndirect = 4,
  kFence = 5,
  kTrap = 6,
  kPollRegmem = 8,
  kCondExe = 9,
  kConstFill = 11,
  kTimestamp = 13,
  kSrbmWrite = 14,
  kGpuvmInv = 16,
  kGcrReq = 17,
};
constexpr uint16_t kTimestampGet = 1, kTimestampGetGlobal = 2;

uint64_t Address(std::span<const uint8_t> raw, size_t dword) {
  return LoadLe<uint64_t>(raw.data() + 4 * dword);
}

}  // namespace

SdmaEngine::SdmaEngine(Card& card, GpuVm& vm, Ih& ih, const Psp& psp)
    : card_(card),
      vm_(vm),
      ih_(ih),
      psp_(psp),
      gen_(amd::SdmaGenOf(card.Version(amd::kHwSdma0).major)) {
  // Reset values: gc_11_0_0_default.h.
  RegisterFile& regs = card.regs;
  const std::string queue = "regSDMA0_QUEUE0_";
  rb_cntl_ = regs.Define(queue + "RB_CNTL", 0x00040800);
  base_ = regs.Define(queue + "RB_BASE");
  base_hi_ = regs.Define(queue + "RB_BASE_HI");
  rptr_ = regs.Define(queue + "RB_RPTR");
  rptr_hi_ = regs.Define(queue + "RB_RPTR_HI");
  wptr_ = regs.Define(queue + "RB_WPTR");
  wptr_hi_ = regs.Define(queue + "RB_WPTR_HI");
  report_lo_ = regs.Define(queue + "RB_RPTR_ADDR_LO");
  report_hi_ = regs.Define(queue + "RB_RPTR_ADDR_HI");
  doorbell_ = regs.Define(queue + "DOORBELL");
  doorbell_offset_ = regs.Define(queue + "DOORBELL_OFFSET");
  regs.Define(queue + "IB_CNTL", 0x100);
  cntl_ = regs.Define("regSDMA0_CNTL", 0x2440);
  // Nothing here depends on these; the driver changes single fields of them.
  regs.Define("regSDMA0_WATCHDOG_CNTL");
  regs.Define("regSDMA0_UTCL1_CNTL", 0x2c000288);
  regs.Define("regSDMA0_UTCL1_PAGE", 0x010cec00);
  regs.Define("regSDMA0_RLC_CGCG_CTRL", 0x00400000);
  regs.Define("regSDMA1_RLC_CGCG_CTRL", 0x00400000);
  // Halted until the driver lets it go.
  const bool mcu = card.Version(amd::kHwSdma0).major >= 7;
  halt_ = regs.Define(mcu ? "regSDMA0_MCU_CNTL" : "regSDMA0_F32_CNTL", 1);
  regs.OnWrite(rb_cntl_, [this](uint32_t) { QueueControl(); });
}

void SdmaEngine::Reset() {
  ring_ = {};
  in_buffer_ = enabled_ = frozen_ = active_ = false;
  reported_ = UINT64_MAX;
  rb_cntl_.Reset();
  doorbell_.Reset();
  halt_.Reset();
}

void SdmaEngine::QueueControl() {
  const bool enable = rb_cntl_.Field("rb_enable");
  if (enable && !enabled_) {
    ring_.base = (static_cast<uint64_t>(base_hi_.value()) << 32 | base_.value()) << 8;
    ring_.ring_size = 4ull << rb_cntl_.Field("rb_size");
    ring_.at = static_cast<uint64_t>(rptr_hi_.value()) << 32 | rptr_.value();
    ring_.end = static_cast<uint64_t>(wptr_hi_.value()) << 32 | wptr_.value();
    reported_ = UINT64_MAX;
    in_buffer_ = active_ = false;
  }
  enabled_ = enable;
}

bool SdmaEngine::Claims(uint32_t doorbell) const {
  return enabled_ && doorbell_.Field("enable") && doorbell_offset_.Field("offset") == doorbell;
}

void SdmaEngine::Doorbell(uint64_t wptr) {
  // Packets are whole dwords; a pointer that went back would mean a ring set up anew.
  ring_.end = std::max<uint64_t>(ring_.end, wptr & ~3ull);
  wptr_.Set(static_cast<uint32_t>(ring_.end));
  wptr_hi_.Set(static_cast<uint32_t>(ring_.end >> 32));
}

bool SdmaEngine::Switched() const {
  const bool firmware = psp_.Loaded(kFwSdmaTh0) || psp_.Loaded(kFwSdma0);
  return psp_.gfx_started() && firmware && !halt_.Field("halt") && !card_.gone && !card_.fatal;
}

Work SdmaEngine::state() const {
  if (!enabled_ || (!active_ && ring_.left() == 0)) return Work::kIdle;
  if (frozen_) return Work::kStuck;
  return Switched() ? Work::kRunnable : Work::kWaiting;
}

Work SdmaEngine::Run(Budget& budget) {
  Work work = state();
  while (work == Work::kRunnable && budget.left()) {
    if (!active_ && !Begin()) {
      work = frozen_ ? Work::kStuck : Work::kIdle;
      break;
    }
    budget.packets--;
    switch (Continue(budget)) {
      case Step::kDone:
        Finish();
        break;
      case Step::kHeld:
        work = Work::kWaiting;
        break;
      case Step::kMore:
        break;
      case Step::kFrozen:
        work = Work::kStuck;
        break;
    }
  }
  if (enabled_) ReportPointer();
  return work;
}

bool SdmaEngine::Begin() {
  for (;;) {
    PacketStream& stream = Stream();
    if (stream.left() < 4) {
      if (!in_buffer_) return false;
      // The buffer is done: so is the INDIRECT packet behind which the ring goes on.
      in_buffer_ = false;
      continue;
    }
    const uint64_t first = std::min(stream.left(), kFirstLook);
    if (!stream.Peek(vm_, kClient, first, bytes_)) return Freeze(), false;
    packet_ = amd::DecodeSdma(bytes_, gen_);
    const uint64_t size = packet_.bytes();
    // The rest of it is not announced yet. (In a buffer it never will be.)
    if (size > stream.left()) {
      if (in_buffer_) Freeze();
      return false;
    }
    if (size > first) {
      if (!stream.Peek(vm_, kClient, size, bytes_)) return Freeze(), false;
      packet_ = amd::DecodeSdma(bytes_, gen_);
    }
    const bool bad = size == 0 || packet_.problem == amd::PacketProblem::kUnknownOp ||
                     packet_.problem == amd::PacketProblem::kOtherGeneration ||
                     packet_.problem == amd::PacketProblem::kNotAPacket;
    if (bad) {
      card_.counters.sdma_bad_packets++;
      return Freeze(), false;
    }
    active_ = true;
    never_ = false;
    progress_ = 0;
    return true;
  }
}

void SdmaEngine::Freeze() {
  frozen_ = true;
  IhEntry entry;
  entry.source = IhSource::kSdmaFrozen;
  ih_.Push(entry);
}

void SdmaEngine::Finish() {
  card_.counters.sdma_packets++;
  active_ = false;
  // An INDIRECT packet leaves `at` behind itself already: Stream() is the buffer by then.
  if (packet_.op != kIndirect) Stream().at += packet_.bytes();
}

SdmaEngine::Step SdmaEngine::Continue(Budget& budget) {
  switch (packet_.op) {
    case kCopy:
      return Copy(budget);
    case kPollRegmem:
      return Poll();
    case kFence:
      return Fence();
    case kWrite:
      return WriteWords();
    case kConstFill:
      return Fill(budget);
    case kIndirect:
      return Indirect();
    default:
      return Simple();
  }
}

SdmaEngine::Step SdmaEngine::Copy(Budget& budget) {
  const auto copy = amd::CopyOf(packet_);
  if (!copy) {
    card_.counters.sdma_skipped++;
    return Step::kDone;
  }
  if (progress_ == 0) {
    if (const HangRule* stall = card_.hangs.Strike(HangKind::kSdmaStall)) {
      frozen_ = true;
      if (stall->other) {
        IhEntry entry;
        entry.source = IhSource::kSdmaQueueHang;
        ih_.Push(entry);
      }
      return Step::kFrozen;
    }
    const HangRule* fault =
        card_.hangs.Strike(HangKind::kPageFault, [](const HangRule& rule) { return !rule.va; });
    if (fault) {
      vm_.Inject(copy->dst, true, kClient);
      frozen_ = fault->stop;
      return fault->stop ? Step::kFrozen : Step::kDone;  // the dummy page took it
    }
    card_.counters.sdma_copies++;
  }
  while (progress_ < copy->bytes && budget.left()) {
    const GpuVm::Run from = vm_.Access(copy->src + progress_, false, kClient);
    const GpuVm::Run to = vm_.Access(copy->dst + progress_, true, kClient);
    uint64_t count = std::min({from.bytes, to.bytes, copy->bytes - progress_, budget.bytes});
    GpuVm::Run second;
    if (copy->dst2) {
      second = vm_.Access(*copy->dst2 + progress_, true, kClient);
      count = std::min(count, second.bytes);
    }
    if (from.halt || to.halt || second.halt) return Freeze(), Step::kFrozen;
    for (uint8_t* target : {to.data, second.data}) {
      if (!target) continue;
      if (from.data) {
        std::memmove(target, from.data, count);
      } else {
        std::memset(target, 0xff, count);
      }
    }
    progress_ += count;
    card_.counters.sdma_bytes += count;
    budget.Spend(count);
  }
  return progress_ < copy->bytes ? Step::kMore : Step::kDone;
}

SdmaEngine::Step SdmaEngine::Poll() {
  const auto wait = amd::WaitOf(packet_);
  if (!wait) {
    card_.counters.sdma_skipped++;
    return Step::kDone;
  }
  if (progress_ == 0) {
    progress_ = 1;
    never_ = card_.hangs.Strike(HangKind::kSdmaPollNever) != nullptr;
  }
  if (never_) return Step::kHeld;
  uint32_t value = 0;
  if (!wait->memory) {
    value = card_.regs.EngineRead(wait->address);
  } else if (!vm_.Load32(wait->address, value, kClient)) {
    return Freeze(), Step::kFrozen;
  }
  return amd::CompareHolds(wait->function, value, wait->reference, wait->mask) ? Step::kDone
                                                                               : Step::kHeld;
}

SdmaEngine::Step SdmaEngine::Fence() {
  const auto fence = amd::FenceOf(packet_);
  if (!fence) return Step::kDone;
  card_.counters.sdma_fences++;
  if (card_.hangs.Strike(HangKind::kFenceLost)) return Step::kDone;
  if (!vm_.Store(fence->address, fence->value, fence->bytes, kClient))
    return Freeze(), Step::kFrozen;
  return Step::kDone;
}

SdmaEngine::Step SdmaEngine::WriteWords() {
  if (packet_.sub_op != 0 || packet_.raw.size() < 20) {
    card_.counters.sdma_skipped++;
    return Step::kDone;
  }
  const auto data = packet_.raw.subspan(16);
  const uint64_t to = Address(packet_.raw, 1);
  const bool ok = data.size() == 4   ? vm_.Store(to, LoadLe<uint32_t>(data.data()), 4, kClient)
                  : data.size() == 8 ? vm_.Store(to, LoadLe<uint64_t>(data.data()), 8, kClient)
                                     : vm_.Write(to, data, kClient);
  return ok ? Step::kDone : (Freeze(), Step::kFrozen);
}

SdmaEngine::Step SdmaEngine::Fill(Budget& budget) {
  if (packet_.sub_op != 0) {
    card_.counters.sdma_skipped++;
    return Step::kDone;
  }
  const uint64_t to = Address(packet_.raw, 1);
  const uint32_t value = amd::Dword(packet_.raw, 3);
  const uint64_t total = (amd::Dword(packet_.raw, 4) & 0x3fffffff) + 1ull;
  while (progress_ < total && budget.left()) {
    const GpuVm::Run run = vm_.Access(to + progress_, true, kClient);
    if (run.halt) return Freeze(), Step::kFrozen;
    const uint64_t count = std::min({run.bytes, total - progress_, budget.bytes});
    for (uint64_t i = 0; run.data && i < count; i++)
      run.data[i] = static_cast<uint8_t>(value >> 8 * ((progress_ + i) % 4));
    progress_ += count;
    budget.Spend(count);
  }
  return progress_ < total ? Step::kMore : Step::kDone;
}

SdmaEngine::Step SdmaEngine::Indirect() {
  const auto target = amd::IndirectOf(packet_);
  if (!target || in_buffer_) {  // buffers do not nest
    card_.counters.sdma_bad_packets++;
    return Freeze(), Step::kFrozen;
  }
  ring_.at += packet_.bytes();
  buffer_ = {target->address, 0, 0, target->dwords * 4ull};
  in_buffer_ = true;
  return Step::kDone;
}

SdmaEngine::Step SdmaEngine::Simple() {
  const auto raw = packet_.raw;
  switch (packet_.op) {
    case kNop:
    case kGpuvmInv:
    case kGcrReq:
      return Step::kDone;
    case kTimestamp:
      if (packet_.sub_op != kTimestampGet && packet_.sub_op != kTimestampGetGlobal)
        return Step::kDone;
      return vm_.Store(Address(raw, 1), GpuClock(), 8, kClient) ? Step::kDone
                                                                : (Freeze(), Step::kFrozen);
    case kTrap: {
      IhEntry entry;
      entry.source = IhSource::kSdmaTrap;
      entry.context[0] = amd::Dword(raw, 1) & 0x0fffffff;
      if (cntl_.Field("trap_enable")) ih_.Push(entry);
      return Step::kDone;
    }
    case kCondExe: {
      uint32_t value = 0;
      if (!vm_.Load32(Address(raw, 1), value, kClient)) return Freeze(), Step::kFrozen;
      if (value == amd::Dword(raw, 3)) return Step::kDone;
      PacketStream& stream = Stream();
      const uint64_t skip = (amd::Dword(raw, 4) & 0x3fff) * 4ull;
      stream.at += std::min(skip, stream.left() - packet_.bytes());
      return Step::kDone;
    }
    case kSrbmWrite:
      if (packet_.sub_op == 0)
        card_.regs.EngineWrite(amd::Dword(raw, 1) & 0x3ffff, amd::Dword(raw, 2));
      return Step::kDone;
    default:
      card_.counters.sdma_skipped++;
      return Step::kDone;
  }
}

void SdmaEngine::ReportPointer() {
  // Inside a buffer the ring's pointer stays at the packet that named it.
  if (ring_.at == reported_) return;
  reported_ = ring_.at;
  rptr_.Set(static_cast<uint32_t>(ring_.at));
  rptr_hi_.Set(static_cast<uint32_t>(ring_.at >> 32));
  const uint64_t report =
      static_cast<uint64_t>(report_hi_.value()) << 32 | (report_lo_.value() & ~3u);
  if (rb_cntl_.Field("rptr_writeback_enable")) vm_.Store(report, ring_.at, 8, kClient);
}

}  // namespace tg::sim
