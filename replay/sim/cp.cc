#include "replay/sim/cp.h"

namespace tg::sim {
namespace {

constexpr uint32_t kMec = 1;  // micro engine 1
constexpr uint32_t kMecHalt = 1u << 30;

// GRBM_GFX_CNTL: [1:0] pipe, [3:2] me, [7:4] vmid, [10:8] queue. The vmid selects other registers.
constexpr uint32_t kSelectMask = 0x70f;
constexpr uint32_t Select(uint32_t me, uint32_t pipe, uint32_t queue) {
  return pipe | me << 2 | queue << 8;
}

}  // namespace

Cp::Cp(Card& card, GpuVm& vm, Ih& ih, const Psp& psp) : card_(card), psp_(psp) {
  for (auto& queue : queues_) queue = std::make_unique<CpQueue>(card, vm, ih);
  RegisterFile& regs = card.regs;
  select_ = regs.Define("regGRBM_GFX_CNTL");
  mec_cntl_ = regs.Define("regCP_MEC_RS64_CNTL", kMecHalt);
  range_low_ = regs.Define("regCP_MEC_DOORBELL_RANGE_LOWER");
  range_high_ = regs.Define("regCP_MEC_DOORBELL_RANGE_UPPER");
  regs.OnWrite(mec_cntl_, [this](uint32_t) {
    if (mec_cntl_.Field("mec_pipe0_reset")) StopAll();
  });
  DefineHqd();

  regs.Define("regCP_STAT");  // never busy as seen from outside: packets take no time
  regs.Define("regSCRATCH_REG6");
  regs.Define("regSCRATCH_REG7");
  // The RLC answers a safe mode request at once: the command bit clears.
  Register safe_mode = regs.Define("regRLC_SAFE_MODE");
  regs.OnWrite(safe_mode, [this, safe_mode](uint32_t value) mutable {
    if ((value & 1) && card_.hangs.Strike(HangKind::kRlcStuck)) return;
    safe_mode.Set(value & ~1u);
  });
}

uint32_t Cp::Word(const char* name) const {
  const amd::RegisterDef* def = card_.regs.Def(name);
  const amd::RegisterDef* first = card_.regs.Def("regCP_MQD_BASE_ADDR");
  return def && first ? def->offset - first->offset : 0;
}

void Cp::DefineHqd() {
  RegisterFile& regs = card_.regs;
  first_ = regs.Define("regCP_MQD_BASE_ADDR").dword();
  count_ = Word("regCP_HQD_PQ_WPTR_HI") + 1;
  active_ = Word("regCP_HQD_ACTIVE");
  vmid_ = Word("regCP_HQD_VMID");
  base_ = Word("regCP_HQD_PQ_BASE");
  base_hi_ = Word("regCP_HQD_PQ_BASE_HI");
  rptr_ = Word("regCP_HQD_PQ_RPTR");
  report_ = Word("regCP_HQD_PQ_RPTR_REPORT_ADDR");
  report_hi_ = Word("regCP_HQD_PQ_RPTR_REPORT_ADDR_HI");
  doorbell_ = Word("regCP_HQD_PQ_DOORBELL_CONTROL");
  control_ = Word("regCP_HQD_PQ_CONTROL");
  dequeue_ = Word("regCP_HQD_DEQUEUE_REQUEST");
  aql_ = Word("regCP_HQD_AQL_CONTROL");
  wptr_ = Word("regCP_HQD_PQ_WPTR_LO");
  wptr_hi_ = Word("regCP_HQD_PQ_WPTR_HI");
  for (uint32_t word = 0; word < count_; word++) {
    const Register reg = regs.DefineAt(first_ + word);
    regs.OnRead(reg, [this, word](uint32_t) { return HqdRead(word); });
    regs.OnWrite(reg, [this, word](uint32_t value) { HqdWritten(word, value); });
  }
}

void Cp::Reset() {
  StopAll();
  banks_.clear();
}

uint32_t Cp::Selected() const {
  return select_.value() & kSelectMask;
}

std::vector<uint32_t>& Cp::BankOf(uint32_t selected) {
  auto& bank = banks_[selected];
  bank.resize(count_);
  return bank;
}

std::vector<uint32_t>& Cp::QueueBank(size_t queue) {
  return BankOf(Select(kMec, 0, static_cast<uint32_t>(queue)));
}

CpQueue* Cp::SelectedQueue() {
  for (size_t i = 0; i < kQueues; i++)
    if (Selected() == Select(kMec, 0, static_cast<uint32_t>(i))) return queues_[i].get();
  return nullptr;
}

uint32_t Cp::HqdRead(uint32_t word) {
  if (const CpQueue* queue = SelectedQueue(); queue && queue->active()) {
    const uint64_t unit = queue->aql() ? amd::kAqlPacketSize : 4;
    if (word == rptr_) return static_cast<uint32_t>(queue->rptr() / unit);
    if (word == wptr_) return static_cast<uint32_t>(queue->wptr() / unit);
    if (word == wptr_hi_) return static_cast<uint32_t>(queue->wptr() / unit >> 32);
  }
  return BankOf(Selected())[word];
}

void Cp::HqdWritten(uint32_t word, uint32_t value) {
  BankOf(Selected())[word] = value;
  CpQueue* queue = SelectedQueue();
  if (!queue) return;
  if (word == active_) {
    if (!(value & 1)) {
      queue->Deactivate();
    } else if (!queue->active()) {
      Activate(Selected() >> 8);
    }
  } else if (word == dequeue_ && (value & 0xf)) {
    if (queue->active() && card_.hangs.Strike(HangKind::kMecStuck)) return;
    queue->Deactivate();
    BankOf(Selected())[active_] = 0;
    BankOf(Selected())[dequeue_] = 0;
  }
}

uint32_t Cp::Field(uint32_t word, const char* reg, const char* field, size_t queue) {
  const amd::RegisterDef* def = card_.regs.Def(reg);
  if (!def) return 0;
  return static_cast<uint32_t>(amd::GetField(*def, field, QueueBank(queue)[word]).value_or(0));
}

void Cp::Activate(size_t queue) {
  const std::vector<uint32_t>& bank = QueueBank(queue);
  const auto pair = [&bank](uint32_t low, uint32_t high) {
    return static_cast<uint64_t>(bank[high]) << 32 | bank[low];
  };
  CpQueueSetup setup;
  setup.aql = bank[aql_] & 1;
  setup.base = pair(base_, base_hi_) << 8;
  setup.size = 8ull << Field(control_, "regCP_HQD_PQ_CONTROL", "queue_size", queue);
  const uint64_t unit = setup.aql ? amd::kAqlPacketSize : 4;
  setup.rptr = bank[rptr_] * unit;
  setup.wptr = pair(wptr_, wptr_hi_) * unit;
  setup.report = pair(report_, report_hi_);
  setup.report_enabled = !Field(control_, "regCP_HQD_PQ_CONTROL", "no_update_rptr", queue);
  setup.ring_id = static_cast<uint8_t>(kMec << 2 | queue << 4);
  queues_[queue]->Activate(setup);
}

void Cp::StopAll() {
  for (size_t i = 0; i < kQueues; i++) {
    queues_[i]->Deactivate();
    if (count_) QueueBank(i)[active_] = 0;
  }
}

bool Cp::Switched() const {
  const bool firmware = psp_.Loaded(kFwRs64Mec) || psp_.Loaded(kFwCpMec);
  return psp_.gfx_started() && firmware && mec_cntl_.Field("mec_pipe0_active") &&
         !mec_cntl_.Field("mec_halt") && !mec_cntl_.Field("mec_pipe0_reset") && !card_.gone &&
         !card_.fatal;
}

CpQueue* Cp::Claims(uint32_t doorbell) {
  const uint32_t byte = doorbell * 4;
  if (byte < (range_low_.value() & 0xffc) || byte > (range_high_.value() & 0xffc)) return nullptr;
  const char* control = "regCP_HQD_PQ_DOORBELL_CONTROL";
  for (size_t i = 0; i < kQueues; i++) {
    if (queues_[i]->active() && Field(doorbell_, control, "doorbell_en", i) &&
        Field(doorbell_, control, "doorbell_offset", i) == doorbell)
      return queues_[i].get();
  }
  return nullptr;
}

Work Cp::state() const {
  Work work = Work::kIdle;
  for (const auto& queue : queues_) {
    const Work one = queue->state();
    if (one == Work::kRunnable) return Switched() ? one : Work::kWaiting;
    if (one != Work::kIdle) work = one;
  }
  return work;
}

Work Cp::Run(Budget& budget) {
  if (!Switched()) return state();
  Work work = Work::kIdle;
  for (const auto& queue : queues_) {
    const Work one = queue->Run(budget);
    if (one == Work::kRunnable || work == Work::kIdle) work = one;
    if (one == Work::kWaiting && work == Work::kStuck) work = one;
  }
  return work;
}

}  // namespace tg::sim
