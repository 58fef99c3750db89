#include "decoder/model/queues.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "schemas/amd/doorbell.h"

namespace tg::model {
namespace {

constexpr size_t kMaxWritten = 16;

// Key of an engine: SDMA by engine and queue, compute by XCC and the HQD selected.
uint32_t EngineKey(const QueueRegister& reg, const QueueSelect& select) {
  if (reg.sdma) return (reg.engine & 0xffff) << 8 | (reg.queue & 0xff);
  return 1u << 31 | (reg.engine & 0xff) << 16 | static_cast<uint32_t>(select.me) << 8 |
         static_cast<uint32_t>(select.pipe) << 4 | select.queue;
}

// Which SDMA engine a doorbell belongs to by the map alone: ten slots an engine. Not the number of
// the driver's queue, which counts the queues of an engine first.
std::optional<uint32_t> SdmaOfDoorbell(uint64_t offset) {
  constexpr uint64_t kEngines = 16, kSlots = 10;
  if (offset % 8 != 0 || offset / 8 < amd::kDoorbellSdma0) return std::nullopt;
  const uint64_t slot = offset / 8 - amd::kDoorbellSdma0;
  if (slot % kSlots != 0 || slot / kSlots >= kEngines) return std::nullopt;
  return static_cast<uint32_t>(slot / kSlots);
}

bool IsMecDoorbell(uint64_t offset) {
  return offset >= amd::kDoorbellMecRing0 * 8 && offset < (amd::kDoorbellMecRing0 + 8) * 8;
}

std::string ComputeName(std::optional<uint32_t> doorbell) {
  if (doorbell && IsMecDoorbell(*doorbell)) {
    return fmt::format("COMPUTE{}", *doorbell / 8 - amd::kDoorbellMecRing0);
  }
  return doorbell ? fmt::format("COMPUTE@{:#x}", *doorbell) : std::string("COMPUTE");
}

std::string SdmaName(uint32_t engine, uint32_t queue) {
  return queue == 0 ? fmt::format("SDMA{}", engine) : fmt::format("SDMA{}.{}", engine, queue);
}

}  // namespace

std::string_view SourceText(PointerSeen::Source source) {
  switch (source) {
    case PointerSeen::Source::kNone:
      return "not observed";
    case PointerSeen::Source::kSetup:
      return "set-up";
    case PointerSeen::Source::kRegister:
      return "register";
    case PointerSeen::Source::kMemory:
      return "memory";
    case PointerSeen::Source::kDoorbell:
      return "doorbell";
  }
  return "";
}

const PointerSeen& Queue::newest_rptr() const {
  if (!rptr_register) return rptr_memory;
  if (!rptr_memory) return rptr_register;
  return rptr_register.call > rptr_memory.call ? rptr_register : rptr_memory;
}

std::optional<uint64_t> Queue::ReadPosition() const {
  const PointerSeen& seen = newest_rptr();
  if (!seen) return std::nullopt;
  uint64_t position = ToBytes(seen.raw);
  if (!announced) return position;
  // A register read may have given the low half only.
  if (seen.source == PointerSeen::Source::kRegister && seen.raw <= 0xffffffff && sdma()) {
    const uint64_t high = *announced & ~0xffffffffull;
    uint64_t wide = high | position;
    if (wide > *announced && high != 0) wide -= 1ull << 32;
    if (position + (ring_bytes ? *ring_bytes : 0) < *announced) position = wide;
  }
  // PM4 read pointers may be reported wrapped.
  if (!sdma() && ring_bytes && *ring_bytes != 0 &&
      (position > *announced || *announced - position > *ring_bytes)) {
    const uint64_t behind =
        (*announced % *ring_bytes + *ring_bytes - position % *ring_bytes) % *ring_bytes;
    if (behind <= *announced) position = *announced - behind;
  }
  return position;
}

Queues::Queues(const QueueMemory& memory) : memory_(memory) {}
Queues::~Queues() = default;

void Queues::SetPacketListener(std::function<void(const QueuePacketEvent&)> listener) {
  listener_ = std::move(listener);
}

void Queues::SetVersions(unsigned sdma_major, unsigned gc_major) {
  sdma_gen_ = amd::SdmaGenOf(sdma_major);
  pm4_gen_ = amd::Pm4GenOf(gc_major);
  for (Queue& queue : queues_) SetFormat(queue);
}

void Queues::SetFormat(Queue& queue) {
  queue.format.sdma = sdma_gen_;
  queue.format.pm4 = pm4_gen_;
}

// ---- set-up ----------------------------------------------------------------------------------

Queue& Queues::Make(std::string name, amd::RingFormat format) {
  if (queues_.size() >= kMaxQueues) return queues_.back();
  Queue& queue = queues_.emplace_back();
  queue.index = queues_.size() - 1;
  queue.name = std::move(name);
  queue.format.format = format;
  SetFormat(queue);
  next_.push_back(1);
  return queue;
}

Queues::Engine& Queues::EngineOf(const QueueRegister& reg) {
  const QueueSelect select = reg.sdma ? QueueSelect{} : select_[reg.engine & 0xff];
  const uint32_t key = EngineKey(reg, select);
  auto found = engines_.find(key);
  if (found == engines_.end()) {
    if (engines_.size() >= 4 * kMaxQueues) return engines_.rbegin()->second;
    found = engines_.emplace(key, Engine()).first;
    found->second.id = reg;
    found->second.select = select;
  }
  return found->second;
}

// Takes over what is known; what is not known keeps its value.
void Queues::Adopt(Queue& queue, const QueueSetup& setup) {
  queue.setup = setup;
  if (const auto va = setup.ring_va()) queue.ring_va = va;
  if (const auto bytes = setup.ring_bytes(queue.sdma())) {
    queue.ring_bytes = *bytes <= kMaxRingBytes ? bytes : std::nullopt;
  }
  if (setup.rptr_addr.known()) queue.rptr_va = setup.rptr_addr.value();
  if (setup.wptr_addr.known()) queue.wptr_va = setup.wptr_addr.value();
  if (const auto doorbell = setup.doorbell_offset()) queue.doorbell_offset = doorbell;
  if (!queue.sdma()) {
    queue.format.format = setup.aql ? amd::RingFormat::kAql : amd::RingFormat::kPm4;
  }
}

Queue* Queues::FindCompute(const QueueSetup& setup) {
  for (Queue& queue : queues_) {
    if (queue.sdma() || !queue.known_format) continue;
    if (setup.doorbell_offset() && queue.doorbell_offset == setup.doorbell_offset()) return &queue;
  }
  return nullptr;
}

Queue& Queues::QueueOfEngine(Engine& engine) {
  if (engine.queue) return queues_[*engine.queue];
  Queue* queue = nullptr;
  if (engine.id.sdma) {
    const std::string name = SdmaName(engine.id.engine, engine.id.queue);
    if (const auto found = FindByName(name)) queue = &queues_[*found];
    if (!queue) queue = &Make(name, amd::RingFormat::kSdma);
  } else {
    queue = FindCompute(engine.setup);
    if (!queue) {
      queue = &Make(ComputeName(engine.setup.doorbell_offset()),
                    engine.setup.aql ? amd::RingFormat::kAql : amd::RingFormat::kPm4);
    }
  }
  engine.queue = queue->index;
  Adopt(*queue, engine.setup);
  return *queue;
}

void Queues::StartEpoch(Queue& queue, uint64_t call) {
  ++queue.epochs;
  queue.setup_call = call;
  queue.announced.reset();
  queue.rptr_memory = queue.rptr_register = queue.wptr_memory = queue.wptr_register = {};
  for (Submission& s : queue.submissions) {
    if (s.content == Submission::Content::kPending) s.content = Submission::Content::kNotObserved;
    if (!s.retired_call) s.wiped = true;
  }
  next_[queue.index] = queue.submissions_total + 1;
}

void Queues::Commit(Engine& engine, uint64_t call) {
  engine.setup.enabled = true;
  Queue& queue = QueueOfEngine(engine);
  if (!engine.id.sdma && engine.id.engine != 0 && queue.epochs > 0 &&
      queue.ring_va == engine.setup.ring_va()) {
    // One more XCC on the same ring.
    queue.xccs = std::max(queue.xccs, engine.id.engine + 1);
    return;
  }
  Adopt(queue, engine.setup);
  StartEpoch(queue, call);
}

void Queues::OnRegisterWrite(std::string_view name, uint32_t instance, uint32_t value,
                             uint64_t call, uint64_t) {
  if (IsQueueSelect(name)) {
    if (instance < 64) select_[instance] = DecodeQueueSelect(value);
    return;
  }
  const auto reg = ParseQueueRegister(name, instance);
  if (!reg) return;
  Engine& engine = EngineOf(*reg);
  QueueSetup& setup = engine.setup;
  switch (reg->reg) {
    case QueueReg::kControl:
      setup.control = value;
      if (reg->sdma) {
        if (value & 1) {
          Commit(engine, call);
        } else {
          setup.enabled = false;
          if (engine.queue) queues_[*engine.queue].setup.enabled = false;
        }
        return;
      }
      break;
    case QueueReg::kBase:
      setup.base.Set(false, value);
      break;
    case QueueReg::kBaseHi:
      setup.base.Set(true, value);
      break;
    case QueueReg::kRptr:
      setup.rptr.Set(false, value);
      break;
    case QueueReg::kRptrHi:
      setup.rptr.Set(true, value);
      break;
    case QueueReg::kWptr:
      setup.wptr.Set(false, value);
      break;
    case QueueReg::kWptrHi:
      setup.wptr.Set(true, value);
      break;
    case QueueReg::kRptrAddr:
      setup.rptr_addr.Set(false, value);
      break;
    case QueueReg::kRptrAddrHi:
      setup.rptr_addr.Set(true, value);
      break;
    case QueueReg::kWptrAddr:
      setup.wptr_addr.Set(false, value);
      break;
    case QueueReg::kWptrAddrHi:
      setup.wptr_addr.Set(true, value);
      break;
    case QueueReg::kDoorbell:
      break;
    case QueueReg::kDoorbellOffset:
      setup.doorbell_control = value;
      break;
    case QueueReg::kAqlControl:
      setup.aql = value & 1;
      break;
    case QueueReg::kActive:
      if (value & 1) {
        Commit(engine, call);
      } else if (engine.queue) {
        queues_[*engine.queue].setup.enabled = false;
      }
      return;
    case QueueReg::kDequeue:
      if (value != 0 && engine.queue) queues_[*engine.queue].setup.enabled = false;
      return;
  }
  // A queue that runs already and is given a new base by a client we joined late.
  if (engine.queue && !queues_[*engine.queue].epochs) Adopt(queues_[*engine.queue], setup);
}

void Queues::OnVramWrite(uint64_t, std::span<const uint8_t> bytes, uint64_t) {
  const auto setup = ParseMqd(bytes);
  if (!setup || !setup->doorbell_offset()) return;
  Queue* queue = FindCompute(*setup);
  if (!queue) {
    queue = &Make(ComputeName(setup->doorbell_offset()),
                  setup->aql ? amd::RingFormat::kAql : amd::RingFormat::kPm4);
  } else if (queue->epochs > 0) {
    return;  // the registers follow and say the same
  }
  Adopt(*queue, *setup);
}

void Queues::OnRegisterRead(std::string_view name, uint32_t instance, uint32_t value, uint64_t call,
                            uint64_t) {
  const auto reg = ParseQueueRegister(name, instance);
  if (!reg) return;
  const bool high = reg->reg == QueueReg::kRptrHi || reg->reg == QueueReg::kWptrHi;
  const bool rptr = reg->reg == QueueReg::kRptr || reg->reg == QueueReg::kRptrHi;
  if (!rptr && reg->reg != QueueReg::kWptr && reg->reg != QueueReg::kWptrHi) return;
  Engine& engine = EngineOf(*reg);
  Halves& halves = rptr ? engine.rptr_read : engine.wptr_read;
  halves.Set(high, value);
  Queue& queue = QueueOfEngine(engine);
  PointerSeen& seen = rptr ? queue.rptr_register : queue.wptr_register;
  seen = {.source = PointerSeen::Source::kRegister, .raw = halves.value(), .call = call};
  if (rptr) NoteRptr(queue, call);
}

// ---- doorbells -------------------------------------------------------------------------------

std::optional<size_t> Queues::FindByDoorbell(uint64_t offset) const {
  for (const Queue& queue : queues_) {
    if (queue.doorbell_offset && *queue.doorbell_offset == offset) return queue.index;
  }
  return std::nullopt;
}

std::optional<size_t> Queues::FindByRegister(const QueueRegister& reg) const {
  QueueSelect select;
  if (!reg.sdma) {
    const auto selected = select_.find(reg.engine & 0xff);
    if (selected != select_.end()) select = selected->second;
  }
  const auto engine = engines_.find(EngineKey(reg, select));
  return engine == engines_.end() ? std::nullopt : engine->second.queue;
}

std::optional<size_t> Queues::FindByName(std::string_view name) const {
  const auto same = [](char a, char b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(a) == lower(b);
  };
  for (const Queue& queue : queues_) {
    if (std::equal(queue.name.begin(), queue.name.end(), name.begin(), name.end(), same)) {
      return queue.index;
    }
  }
  return std::nullopt;
}

Queue& Queues::QueueOfDoorbell(uint64_t offset) {
  if (const auto found = FindByDoorbell(offset)) return queues_[*found];
  // Set up, but not enabled in this trace.
  for (auto& [key, engine] : engines_) {
    if (engine.setup.doorbell_offset() == offset) return QueueOfEngine(engine);
  }
  Queue* queue = nullptr;
  if (const auto engine = SdmaOfDoorbell(offset)) {
    queue = &QueueOfEngine(EngineOf({.sdma = true, .engine = *engine}));
  } else if (IsMecDoorbell(offset)) {
    queue = &Make(ComputeName(static_cast<uint32_t>(offset)), amd::RingFormat::kPm4);
  } else {
    queue = &Make(fmt::format("DOORBELL@{:#x}", offset), amd::RingFormat::kSdma);
    queue->known_format = false;
  }
  queue->doorbell_offset = static_cast<uint32_t>(offset);
  return *queue;
}

void Queues::OnDoorbell(uint64_t offset, uint64_t value, uint32_t size, uint64_t call,
                        uint64_t ns) {
  if (offset > 0xffffffff) return;
  if (size < 8) value &= 0xffffffff;
  Announce(QueueOfDoorbell(offset), value, call, ns);
}

void Queues::Announce(Queue& queue, uint64_t value, uint64_t call, uint64_t ns) {
  ++queue.doorbells;
  queue.last_doorbell_value = value;
  queue.last_doorbell_call = call;
  queue.last_doorbell_ns = ns;
  if (value > 1ull << 56) {
    Warn(queue, "doorbell-absurd", call, fmt::format("doorbell value {:#x}", value));
    return;
  }
  const uint64_t end =
      queue.ToBytes(queue.format.format == amd::RingFormat::kAql ? value + 1 : value);
  Submission submission;
  submission.end = end;
  submission.doorbell_value = value;
  submission.doorbell_call = call;
  submission.doorbell_ns = ns;
  const auto fits = [&](uint64_t begin) {
    return begin <= end && (!queue.ring_bytes || end - begin <= *queue.ring_bytes);
  };
  if (queue.announced && end < *queue.announced) {
    Warn(queue, "doorbell-backwards", call,
         fmt::format("doorbell {:#x} after {:#x}: restart or second client", value,
                     queue.submissions.empty() ? 0 : queue.submissions.back().doorbell_value));
    StartEpoch(queue, queue.setup_call);
  } else if (queue.announced) {
    if (end == *queue.announced) return;  // rung again
    submission.begin = queue.announced;
  } else if (const Halves& start = queue.setup.wptr;
             queue.epochs > 0 && start.known() && fits(queue.ToBytes(start.value()))) {
    submission.begin = queue.ToBytes(start.value());
  }
  if (!queue.announced && end != 0 && queue.known_format) {
    queue.warm_start = !submission.begin || *submission.begin != 0;
    if (queue.warm_start) {
      std::string where;
      if (const auto offset = queue.RingOffset(end))
        where = fmt::format(" (ring offset {:#x})", *offset);
      Warn(queue, "warm-start", call,
           fmt::format("first doorbell {:#010x}{}: warm start", value, where));
    }
  }
  if (const auto pending = overrun_.find(queue.index); pending != overrun_.end()) {
    Warn(queue, "ring-overrun", pending->second.call, pending->second.text);
    overrun_.erase(pending);
  }
  queue.announced = end;
  if (!queue.ring_va || !memory_.Locate(*queue.ring_va).readable()) GuessRing(queue, end);

  submission.number = ++queue.submissions_total;
  submission.epoch = queue.epochs;
  if (submission.begin) queue.bytes_total += end - *submission.begin;
  queue.submissions.push_back(std::move(submission));
  if (queue.submissions.size() > kMaxSubmissions) {
    queue.submissions.pop_front();
    next_[queue.index] = std::max(next_[queue.index], queue.submissions.front().number);
  }
  CheckOverrun(queue, call);
  Advance(queue, call, ns);
}

void Queues::GuessRing(Queue& queue, uint64_t end) {
  const uint64_t offset = queue.RingOffset(end).value_or(end);
  for (auto piece = written_.rbegin(); piece != written_.rend(); ++piece) {
    const bool like_packets = piece->seen == Seen::kClientWrote && piece->size >= 16;
    if (like_packets && piece->offset + piece->size == offset) {
      queue.guess = {.kind = Place::Kind::kSysmem,
                     .region = piece->region,
                     .offset = 0,
                     .run = offset,
                     .assumed = true};
      return;
    }
  }
}

// ---- pointers --------------------------------------------------------------------------------

void Queues::CheckOverrun(Queue& queue, uint64_t call) {
  const PointerSeen& seen = queue.newest_rptr();
  if (!seen || !queue.ring_bytes || !queue.announced) return;
  const uint64_t position = queue.sdma() ? *queue.ReadPosition() : queue.ToBytes(seen.raw);
  if (position > *queue.announced || *queue.announced - position <= *queue.ring_bytes) return;
  overrun_[queue.index] = {
      .call = call,
      .text = fmt::format(
          "OVERRUN: doorbell {:#010x} is {:#x} bytes past the read pointer {:#010x} ({}, call {}), "
          "the "
          "ring has {:#x}",
          queue.last_doorbell_value, *queue.announced - position, queue.ToRaw(position),
          SourceText(seen.source), seen.call, *queue.ring_bytes)};
}

// A read pointer newer than the last doorbell settles whether that doorbell overran it.
void Queues::NoteRptr(Queue& queue, uint64_t call) {
  const auto pending = overrun_.find(queue.index);
  if (pending == overrun_.end()) return;
  overrun_.erase(pending);
  CheckOverrun(queue, call);
}

bool Queues::PointerWord(const std::optional<uint64_t>& va, uint32_t region, uint64_t offset,
                         uint64_t size, uint64_t& value) const {
  if (!va) return false;
  const Place place = memory_.Locate(*va);
  if (place.kind != Place::Kind::kSysmem || place.region != region) return false;
  if (place.offset >= offset + size || place.offset + 8 <= offset) return false;
  return memory_.Read64(*va, value);
}

void Queues::OnSysmem(Seen seen, uint32_t region, uint64_t offset, uint64_t size, uint64_t call,
                      uint64_t ns) {
  if (size == 0) return;
  if (seen != Seen::kClientRead) {
    written_.push_back(
        {.seen = seen, .region = region, .offset = offset, .size = size, .call = call});
    if (written_.size() > kMaxWritten) written_.pop_front();
  }
  // Fence words first: a submission is known to be retired before its successor is looked at.
  const std::pair<uint64_t, uint64_t> from{region + 1ull, offset < 8 ? 0 : offset - 7};
  for (auto word = fences_.lower_bound(from);
       word != fences_.end() && word->first.first == region + 1ull &&
       word->first.second < offset + size;
       ++word) {
    // What the client writes there itself (recovery sets its timeline to "all done") is no signal.
    if (seen == Seen::kClientWrote) continue;
    CheckFence(word->second, call, ns);
  }
  for (Queue& queue : queues_) {
    uint64_t value = 0;
    if (PointerWord(queue.rptr_va, region, offset, size, value)) {
      queue.rptr_memory = {.source = PointerSeen::Source::kMemory,
                           .raw = value,
                           .call = call,
                           .by_client = seen == Seen::kClientRead};
      NoteRptr(queue, call);
    }
    if (PointerWord(queue.wptr_va, region, offset, size, value)) {
      queue.wptr_memory = {.source = PointerSeen::Source::kMemory, .raw = value, .call = call};
    }
    Advance(queue, call, ns);
  }
}

void Queues::OnEnd(uint64_t call, uint64_t ns) {
  for (Queue& queue : queues_) {
    Advance(queue, call, ns);
    for (uint64_t n = next_[queue.index]; n <= queue.submissions_total; ++n) {
      Submission* submission = FindSubmission(queue.index, n);
      if (submission && submission->content == Submission::Content::kPending) {
        submission->content = Submission::Content::kNotObserved;
      }
    }
    next_[queue.index] = queue.submissions_total + 1;
  }
}

void Queues::OnConnect(uint64_t call, uint64_t ns) {
  OnEnd(call, ns);
  fences_.clear();
  written_.clear();
  for (Queue& queue : queues_) queue.guess = {};
}

void Queues::Warn(const Queue& queue, std::string rule, uint64_t call, std::string text) {
  if (warnings_.size() >= kMaxQueueWarnings) return;
  warnings_.push_back({.rule = std::move(rule),
                       .queue = queue.index,
                       .call = call,
                       .text = queue.name + ": " + std::move(text)});
}

std::vector<QueueWarning> Queues::warnings() const {
  std::vector<QueueWarning> all = warnings_;
  for (const auto& [index, overrun] : overrun_) {
    all.push_back({.rule = "ring-overrun",
                   .queue = index,
                   .call = overrun.call,
                   .text = queues_[index].name + ": " + overrun.text});
  }
  return all;
}

}  // namespace tg::model
