#include "replay/sim/cp_queue.h"

#include <array>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr VmClient kClient = VmClient::kCpc;
constexpr uint64_t kFirstLook = 64;

// Opcodes, as the table of schemas/amd/pm4_packets.cc has them.
enum Opcode : uint16_t {
  kNop = 0x10,
  kDispatchDirect = 0x15,
  kDispatchIndirect = 0x16,
  kCondExec = 0x22,
  kPredExec = 0x23,
  kWriteData = 0x37,
  kWaitRegMem = 0x3c,
  kIndirectBuffer = 0x3f,
  kCopyData = 0x40,
  kEventWrite = 0x46,
  kReleaseMem = 0x49,
  kAcquireMem = 0x58,
  kSetConfigReg = 0x68,
  kSetContextReg = 0x69,
  kSetShReg = 0x76,
  kSetUconfigReg = 0x79,
};
// First register of each SET_*_REG (kernel: soc15d.h, PACKET3_SET_*_REG_START).
constexpr uint32_t kConfigStart = 0x2000, kContextStart = 0xa000, kShStart = 0x2c00,
                   kUconfigStart = 0xc000;

// RELEASE_MEM data_sel.
constexpr uint32_t kSend32 = 1, kSend64 = 2, kSendClock = 3;
// AQL packet types.
constexpr uint16_t kAqlVendor = 0, kAqlDispatch = 2, kAqlBarrierAnd = 3, kAqlBarrierOr = 5;

}  // namespace

CpQueue::CpQueue(Card& card, GpuVm& vm, Ih& ih)
    : card_(card), vm_(vm), ih_(ih), gen_(amd::Pm4GenOf(card.Version(amd::kHwGc).major)) {}

void CpQueue::Activate(const CpQueueSetup& setup) {
  setup_ = setup;
  ring_ = {setup.base, setup.size, setup.rptr, setup.wptr};
  buffers_.clear();
  active_ = true;
  hung_ = begun_ = false;
  reported_ = setup.rptr;
}

void CpQueue::Deactivate() {
  active_ = hung_ = begun_ = false;
  buffers_.clear();
}

void CpQueue::Doorbell(uint64_t value) {
  const uint64_t unit = setup_.aql ? amd::kAqlPacketSize : 4;
  const uint64_t count = setup_.aql ? value + 1 : value;
  if (count > UINT64_MAX / unit) return;
  ring_.end = std::max(ring_.end, count * unit);
}

Work CpQueue::state() const {
  if (!active_ || (!begun_ && buffers_.empty() && ring_.left() == 0)) return Work::kIdle;
  return hung_ ? Work::kStuck : Work::kRunnable;
}

Work CpQueue::Run(Budget& budget) {
  Work work = state();
  while (work == Work::kRunnable && budget.left()) {
    if (!begun_ && !Begin()) {
      work = hung_ ? Work::kStuck : Work::kIdle;
      break;
    }
    budget.packets--;
    budget.Spend(packet_.bytes());
    switch (aql_packet_ ? ContinueAql() : Continue()) {
      case Step::kDone:
        Finish();
        break;
      case Step::kHeld:
        work = Work::kWaiting;
        break;
      case Step::kMore:
        break;
      case Step::kHung:
        work = Work::kStuck;
        break;
    }
  }
  if (active_) ReportPointer();
  return work;
}

bool CpQueue::Begin() {
  while (!buffers_.empty() && buffers_.back().left() == 0) buffers_.pop_back();
  PacketStream& stream = Stream();
  if (stream.left() < 4) return false;
  aql_packet_ = buffers_.empty() && setup_.aql;
  const bool found = aql_packet_ ? BeginAql() : BeginPm4(stream);
  if (!found) return false;
  begun_ = true;
  entered_ = false;
  return true;
}

bool CpQueue::BeginAql() {
  if (ring_.left() < amd::kAqlPacketSize) return false;
  if (!ring_.Peek(vm_, kClient, amd::kAqlPacketSize, bytes_)) return Hang(), false;
  packet_ = amd::DecodeAql(bytes_);
  // A slot the host has not filled yet holds the queue; the doorbell said that it is filled.
  if (packet_.problem == amd::PacketProblem::kNotAPacket) return Bad(), false;
  return true;
}

bool CpQueue::BeginPm4(PacketStream& stream) {
  const uint64_t first = std::min(stream.left(), kFirstLook);
  if (!stream.Peek(vm_, kClient, first, bytes_)) return Hang(), false;
  packet_ = amd::DecodePm4(bytes_, gen_);
  const uint64_t size = packet_.bytes();
  if (size > stream.left()) {
    // The ring's rest comes with a later doorbell; a buffer has no rest.
    if (!buffers_.empty()) Bad();
    return false;
  }
  if (size > first) {
    if (!stream.Peek(vm_, kClient, size, bytes_)) return Hang(), false;
    packet_ = amd::DecodePm4(bytes_, gen_);
  }
  const bool bad = size == 0 || packet_.problem == amd::PacketProblem::kUnknownOp ||
                   packet_.problem == amd::PacketProblem::kOtherGeneration ||
                   packet_.problem == amd::PacketProblem::kBadLength ||
                   packet_.problem == amd::PacketProblem::kNotAPacket;
  if (bad) return Bad(), false;
  return true;
}

void CpQueue::Finish() {
  card_.counters.compute_packets++;
  begun_ = false;
  // An indirect buffer was entered: the packet that named it is behind us already.
  if (packet_.role == amd::PacketRole::kIndirect) return;
  Stream().at += packet_.bytes();
}

CpQueue::Step CpQueue::Bad(IhSource source) {
  card_.counters.compute_bad_packets++;
  IhEntry entry;
  entry.client = IhClient::kGrbmCp;
  entry.source = source;
  entry.ring = setup_.ring_id;
  ih_.Push(entry);
  return Hang();
}

CpQueue::Step CpQueue::Struck() {
  if (entered_) {
    return GpuClock() < not_before_ ? Step::kHeld : Step::kDone;
  }
  entered_ = true;
  if (const HangRule* rule = card_.hangs.Strike(HangKind::kSlowKernel)) {
    not_before_ = GpuClock() + rule->delay_us * kTicksPerMicrosecond;
    return Step::kHeld;
  }
  if (card_.hangs.Strike(HangKind::kComputeStall)) return Hang();
  if (const HangRule* rule = card_.hangs.Strike(HangKind::kBadPacket))
    return Bad(static_cast<IhSource>(rule->code));
  const HangRule* rule = card_.hangs.Strike(HangKind::kShaderError);
  if (!rule) return Step::kDone;
  // SQ interrupt of gfx11 and later: context 0 [24:21] error type, context 1 [7:6] encoding.
  constexpr uint32_t kErrorEncoding = 2;
  IhEntry entry;
  entry.client = IhClient::kGfx;
  entry.source = IhSource::kSqInterrupt;
  entry.ring = setup_.ring_id;
  entry.context = {static_cast<uint32_t>(rule->code) << 21, kErrorEncoding << 6, 0, 0};
  ih_.Push(entry);
  return Hang();
}

CpQueue::Step CpQueue::Hang() {
  hung_ = true;
  return Step::kHung;
}

CpQueue::Step CpQueue::Continue() {
  switch (packet_.op) {
    case kWaitRegMem:
      return Wait();
    case kReleaseMem:
      return Release();
    case kDispatchDirect:
    case kDispatchIndirect:
      return Dispatch();
    case kIndirectBuffer:
      return Indirect();
    case kCopyData:
      return CopyData();
    case kWriteData:
      return WriteData();
    case kSetConfigReg:
      return SetRegisters(kConfigStart);
    case kSetContextReg:
      return SetRegisters(kContextStart);
    case kSetShReg:
      return SetRegisters(kShStart);
    case kSetUconfigReg:
      return SetRegisters(kUconfigStart);
    case kPredExec:
      // One XCC: bit 0 of the mask says whether it takes part.
      if (!(packet_.Get("xcc_mask").value_or(0) & 1)) Skip(packet_.Get("dwords").value_or(0));
      return Step::kDone;
    case kCondExec: {
      uint32_t value = 0;
      if (!vm_.Load32(packet_.Get("address").value_or(0), value, kClient)) return Hang();
      if (value == 0) Skip(packet_.Get("dwords").value_or(0));
      return Step::kDone;
    }
    case kNop:
    case kEventWrite:
    case kAcquireMem:
      return Step::kDone;
    default:
      if (packet_.role != amd::PacketRole::kNop) card_.counters.compute_skipped++;
      return Step::kDone;
  }
}

// Dwords behind this packet, for the predicates.
void CpQueue::Skip(uint64_t dwords) {
  PacketStream& stream = Stream();
  stream.at += std::min(dwords * 4, stream.left() - packet_.bytes());
}

CpQueue::Step CpQueue::Wait() {
  const auto wait = amd::WaitOf(packet_);
  if (!wait) return Bad();
  if (!entered_) {
    entered_ = true;
    if (const auto reg = packet_.Get("write_register"))
      card_.regs.EngineWrite(*reg, wait->reference);
  }
  uint32_t value = 0;
  if (!wait->memory) {
    value = card_.regs.EngineRead(wait->address);
  } else if (!vm_.Load32(wait->address, value, kClient)) {
    return Hang();
  }
  return amd::CompareHolds(wait->function, value, wait->reference, wait->mask) ? Step::kDone
                                                                               : Step::kHeld;
}

CpQueue::Step CpQueue::Release() {
  const auto raw = packet_.raw;
  const uint32_t select = amd::Dword(raw, 2) >> 29;
  const uint64_t address = LoadLe<uint64_t>(raw.data() + 12) & ~3ull;
  uint64_t value = LoadLe<uint64_t>(raw.data() + 20);
  if (select == kSendClock) value = GpuClock();
  const bool writes = select == kSend32 || select == kSend64 || select == kSendClock;
  // An interrupt is asked for by int_sel, but the pipe's TIME_STAMP_INT_ENABLE is off: AM never
  // sets it, so none is raised.
  if (!writes) return Step::kDone;
  if (const Step step = Struck(); step != Step::kDone) return step;
  card_.counters.compute_signals++;
  if (card_.hangs.Strike(HangKind::kFenceLost)) return Step::kDone;
  return vm_.Store(address, value, select == kSend32 ? 4 : 8, kClient) ? Step::kDone : Hang();
}

CpQueue::Step CpQueue::Dispatch() {
  if (const Step step = Struck(); step != Step::kDone) return step;
  card_.counters.compute_dispatches++;
  return Step::kDone;
}

CpQueue::Step CpQueue::Indirect() {
  const auto target = amd::IndirectOf(packet_);
  if (!target || buffers_.size() >= kMaxDepth) return Bad();
  Stream().at += packet_.bytes();
  const bool chain = packet_.Get("chain").value_or(0) && !buffers_.empty();
  if (chain) buffers_.pop_back();
  buffers_.push_back({target->address, 0, 0, target->dwords * 4ull});
  return Step::kDone;
}

CpQueue::Step CpQueue::CopyData() {
  const uint64_t source = packet_.Get("src_sel").value_or(0);
  const uint64_t target = packet_.Get("dst_sel").value_or(0);
  const uint64_t from = packet_.Get("from").value_or(0), to = packet_.Get("to").value_or(0);
  const bool wide = packet_.Get("wide").value_or(0);
  uint64_t value = 0;
  switch (source) {
    case 0:  // register
    case 4:  // performance counter
      value = card_.regs.EngineRead(from & 0xffffffff);
      if (wide)
        value |= static_cast<uint64_t>(card_.regs.EngineRead((from & 0xffffffff) + 1)) << 32;
      break;
    case 1:  // memory
    case 2:  // L2
      if (!vm_.Read(from, {reinterpret_cast<uint8_t*>(&value), wide ? 8u : 4u}, kClient))
        return Hang();
      break;
    case 5:
      value = wide ? from : from & 0xffffffff;
      break;  // immediate
    case 9:
      value = GpuClock();
      break;
    default:
      card_.counters.compute_skipped++;
      return Step::kDone;
  }
  switch (target) {
    case 0:
    case 4:
      card_.regs.EngineWrite(to & 0xffffffff, static_cast<uint32_t>(value));
      if (wide) card_.regs.EngineWrite((to & 0xffffffff) + 1, static_cast<uint32_t>(value >> 32));
      return Step::kDone;
    case 1:
    case 2:
    case 5:
      return vm_.Store(to, value, wide ? 8 : 4, kClient) ? Step::kDone : Hang();
    default:
      card_.counters.compute_skipped++;
      return Step::kDone;
  }
}

CpQueue::Step CpQueue::WriteData() {
  const uint64_t target = packet_.Get("dst_sel").value_or(0);
  const bool same_place = packet_.Get("no_increment").value_or(0);
  const uint64_t to = packet_.Get("to").value_or(0);
  const auto data = packet_.raw.subspan(16);
  if (target == 0) {
    for (size_t i = 0; i * 4 < data.size(); i++)
      card_.regs.EngineWrite((to & 0xffffffff) + (same_place ? 0 : i), amd::Dword(data, i));
    return Step::kDone;
  }
  if (target != 1 && target != 2 && target != 5) {
    card_.counters.compute_skipped++;
    return Step::kDone;
  }
  if (same_place || data.size() == 4) {
    const uint32_t last = amd::Dword(data, data.size() / 4 - 1);
    return vm_.Store(to, last, 4, kClient) ? Step::kDone : Hang();
  }
  return vm_.Write(to, data, kClient) ? Step::kDone : Hang();
}

CpQueue::Step CpQueue::SetRegisters(uint32_t first) {
  const uint32_t offset = amd::Dword(packet_.raw, 1) & 0xffff;
  for (size_t i = 2; i < packet_.dwords; i++)
    card_.regs.EngineWrite(first + offset + i - 2, amd::Dword(packet_.raw, i));
  return Step::kDone;
}

CpQueue::Step CpQueue::ContinueAql() {
  switch (packet_.op) {
    case kAqlVendor:
      if (packet_.role == amd::PacketRole::kIndirect) return Indirect();
      card_.counters.compute_skipped++;
      return Step::kDone;
    case kAqlDispatch: {
      const Step step = Dispatch();
      return step == Step::kDone ? Signal(LoadLe<uint64_t>(packet_.raw.data() + 0x38)) : step;
    }
    case kAqlBarrierAnd:
    case kAqlBarrierOr: {
      // A signal is reached when its value (at +8) is 0; address 0 is no signal.
      const bool all = packet_.op == kAqlBarrierAnd;
      bool any = false, none = true, every = true;
      for (size_t i = 0; i < 5; i++) {
        const uint64_t signal = LoadLe<uint64_t>(packet_.raw.data() + 8 + 8 * i);
        if (signal == 0) continue;
        uint32_t low = 0, high = 0;
        if (!vm_.Load32(signal + 8, low, kClient) || !vm_.Load32(signal + 12, high, kClient))
          return Hang();
        const bool reached = low == 0 && high == 0;
        none = false;
        any |= reached;
        every &= reached;
      }
      if (!none && !(all ? every : any)) return Step::kHeld;
      return Signal(LoadLe<uint64_t>(packet_.raw.data() + 0x38));
    }
    default:
      return Bad();
  }
}

// A completion signal counts down.
CpQueue::Step CpQueue::Signal(uint64_t address) {
  if (address == 0) return Step::kDone;
  uint64_t value = 0;
  if (!vm_.Read(address + 8, {reinterpret_cast<uint8_t*>(&value), 8}, kClient) ||
      !vm_.Store(address + 8, value - 1, 8, kClient))
    return Hang();
  return Step::kDone;
}

void CpQueue::ReportPointer() {
  if (ring_.at == reported_) return;
  reported_ = ring_.at;
  const uint64_t unit = setup_.aql ? amd::kAqlPacketSize : 4;
  if (setup_.report_enabled && setup_.report != 0)
    vm_.Store(setup_.report, ring_.at / unit, 8, kClient);
}

}  // namespace tg::sim
