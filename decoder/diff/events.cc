#include "decoder/diff/events.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <fnmatch.h>
#include <xxhash.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "decoder/model/queue_text.h"
#include "schemas/amd/pte.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::diff {
namespace {

using model::Role;
using trace::Record;

constexpr uint64_t kStagingSize = 2u << 20;    // tinygrad hcq.py: 32 buffers of 2 MiB
constexpr uint64_t kReservedVram = 32u << 20;  // the driver's boot allocator, same every session

uint64_t HashText(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

// Order matters.
class Hash {
 public:
  Hash& Add(uint64_t word) {
    words_[n_++] = word;
    if (n_ == 8) Fold();
    return *this;
  }
  Hash& Add(std::string_view text) { return Add(HashText(text)); }
  uint64_t Get() {
    Fold();
    return state_;
  }

 private:
  void Fold() {
    state_ = XXH3_64bits_withSeed(words_, n_ * sizeof words_[0], state_ + n_);
    n_ = 0;
  }
  uint64_t words_[8];
  size_t n_ = 0;
  uint64_t state_ = 0;
};

uint64_t BodyHash(const trace::BodyView& body) {
  if (body.all_zero) return Hash().Add(1).Add(body.size).Get();
  if (body.xxh3) return Hash().Add(*body.xxh3).Add(body.size).Get();
  const bool zero =
      std::all_of(body.data.begin(), body.data.end(), [](uint8_t b) { return b == 0; });
  if (zero && body.whole()) return Hash().Add(1).Add(body.size).Get();
  return Hash().Add(XXH3_64bits(body.data.data(), body.data.size())).Add(body.size).Get();
}

}  // namespace

std::string_view EventKindName(Event::Kind kind) {
  constexpr std::string_view kNames[] = {"call",       "config",    "register", "vram",
                                         "page-table", "sysmem",    "bar",      "doorbell",
                                         "packet",     "interrupt", "end"};
  return kNames[static_cast<size_t>(kind)];
}

bool Filter::Takes(const Event& event) const {
  const std::string bar = event.bar >= 0 ? "bar" + std::to_string(event.bar) : "";
  const auto hits = [&](const std::string& glob) {
    // Register names may be given without the kernel's prefix.
    std::string_view what = event.what;
    const std::string bare(what.substr(0, 3) == "reg" ? what.substr(3) : what);
    return fnmatch(glob.c_str(), event.what.c_str(), 0) == 0 ||
           fnmatch(glob.c_str(), bare.c_str(), 0) == 0 || glob == bar ||
           glob == model::PhaseName(event.phase) || glob == EventKindName(event.kind);
  };
  if (std::any_of(ignore.begin(), ignore.end(), hits)) return false;
  return only.empty() || std::any_of(only.begin(), only.end(), hits);
}

class EventStream::Impl : public model::Observer {
 public:
  Impl(std::unique_ptr<trace::TraceReader> reader, bool strict, Filter filter)
      : reader_(std::move(reader)), strict_(strict), filter_(std::move(filter)) {
    tables_[0] = 0;
    observation_.Watch(this);
    observation_.SetPacketListener([this](const model::QueuePacketEvent& e) { OnPacket(e); });
  }

  std::optional<Event> Next() {
    while (!ended_ && (ready_.empty() || Held())) {
      Record record;
      if (reader_->Next(record)) {
        Feed(record);
      } else {
        FinishRun();
        observation_.Finish();
        End();
        ended_ = true;
      }
    }
    if (ready_.empty()) return std::nullopt;
    Event event = std::move(ready_.front());
    ready_.pop_front();
    return event;
  }

  const explain::Observation& observation() const { return observation_; }
  const trace::TraceReader& reader() const { return *reader_; }

  explain::Observation::File file() const {
    explain::Observation::File file;
    file.whole = reader_->end_state() == trace::EndState::kClean && reader_->skipped().empty();
    if (!file.whole) {
      file.problem = fmt::format("{} at byte {}", trace::EndStateText(reader_->end_state()),
                                 reader_->good_end());
    }
    for (const model::LossSeen& loss : observation_.session().losses)
      file.lost_calls += loss.calls + loss.packets;
    return file;
  }

  // ---- what the device model tells ----

  void OnRegister(const model::RegisterAccess& access) override {
    if (!strict_ && IsNoise(access)) return;
    const std::string_view name = access.reg->name();
    Event e = Make(Event::Kind::kRegister, access.at, access.write);
    e.bar = access.reg->bar;
    e.last_seq = access.last ? access.last.call : access.at.call;
    e.what = name.empty() ? fmt::format("bar{}+{:#x}", access.reg->bar, access.reg->address)
                          : std::string(name);
    if (access.reg->die) e.what += fmt::format(" die {}", access.reg->die);
    if (access.reg->hit && access.reg->hit.instance)
      e.what += fmt::format(" instance {}", access.reg->hit.instance);
    e.value = fmt::format("{:#x}", access.value);
    e.key =
        Hash().Add(access.write ? 'W' : 'R').Add(access.reg->address).Add(access.reg->bar).Get();
    e.hash = access.value;
    if (access.write) {
      Emit(std::move(e));
    } else {
      EmitPoll(std::move(e));
    }
  }

  void OnMemory(const model::MemoryAccess& access) override {
    if (access.snapshot) return;
    switch (access.space) {
      case model::Space::kVram:
        OnVram(access);
        return;
      case model::Space::kSysmem:
        OnSysmem(access);
        return;
      case model::Space::kBar:
        OnBar(access);
        return;
    }
  }

  void OnDoorbell(const model::DoorbellWrite& doorbell) override {
    Event e = Make(Event::Kind::kDoorbell, doorbell.at, true);
    e.bar = 2;
    e.what = fmt::format("doorbell bar2+{:#x}", doorbell.offset);
    const auto [at, first] = doorbells_.try_emplace(doorbell.offset, 0);
    const uint64_t delta = doorbell.value - at->second;
    at->second = doorbell.value;
    e.value = fmt::format("{:#x} (+{:#x})", doorbell.value, delta);
    e.key = Hash().Add('D').Add(doorbell.offset).Get();
    e.hash = strict_ ? doorbell.value : delta;
    // Packets whose bytes are there already come just before their doorbell.
    const auto early = std::find_if(ready_.begin(), ready_.end(), [&](const Event& ready) {
      return ready.kind == Event::Kind::kPacket && ready.seq == doorbell.at.call;
    });
    if (early == ready_.end()) waiting_.push_back(doorbell.at.call);
    Emit(std::move(e));
  }

 private:
  // ---- records that are no accesses ----

  void Feed(const Record& record) {
    const uint64_t errors_before = observation_.device().ih().entries_read();
    if (record.kind == Record::Kind::kRequest) {
      last_request_ = record.request.header;
      last_seq_ = record.call;
      last_time_ns_ = record.time_ns;
      answered_ = false;
    }
    observation_.Feed(record);
    if (record.kind == Record::Kind::kReply && record.call == last_seq_ && !answered_) {
      answered_ = true;
      OnReply(record);
    }
    if (record.kind == Record::Kind::kRepeat && !record.pattern.empty()) {
      last_seq_ = record.call + record.issued - 1;
      last_time_ns_ = record.last_time_ns;
      last_request_ = record.pattern[(record.issued - 1) % record.pattern.size()].request.header;
    }
    if (observation_.device().ih().entries_read() != errors_before) OnInterrupts();
  }

  void OnReply(const Record& record) {
    using wire::Command;
    const wire::ReplyHeader& r = record.reply.reply;
    const auto command = static_cast<Command>(last_request_.command);
    const bool access = command == Command::kMmioRead || command == Command::kSysmemRead;
    if (access && r.status == 0) return;
    const model::Stamp at{last_seq_, last_time_ns_};
    const bool config = command == Command::kCfgRead || command == Command::kCfgWrite;
    Event e =
        Make(config ? Event::Kind::kConfig : Event::Kind::kCall, at, command == Command::kCfgWrite);
    e.what = model::CallText(last_request_);
    if (config) e.what += fmt::format(" size {}", last_request_.arg1);
    Hash key;
    key.Add(e.what);
    Hash value;
    value.Add(r.status);
    if (r.status != 0) {
      const auto& text = record.reply.body.data;
      e.value =
          fmt::format("refused: {}",
                      model::Printable({reinterpret_cast<const char*>(text.data()), text.size()}));
      value.Add(e.value);
    } else if (command == Command::kMapBar) {
      const wire::BarWords words = wire::MapBarWords(r, observation_.session().revision.revision);
      e.value = fmt::format("size {:#x}", words.size);
      value.Add(words.size);
      if (strict_) value.Add(words.address);
    } else if (command == Command::kMapSysmemFd || command == Command::kMapSysmem) {
      e.value = fmt::format("asked {:#x}", last_request_.arg0);
      key.Add(last_request_.arg0);
      if (command == Command::kMapSysmemFd) value.Add(r.resp0);
      regions_[static_cast<uint32_t>(r.resp1)] = {next_region_++, last_request_.arg0};
    } else if (command == Command::kCfgWrite) {
      e.value = fmt::format("{:#x}", last_request_.arg2);
      value.Add(last_request_.arg2);
    } else {
      e.value = fmt::format("{:#x} {:#x}", r.resp0, r.resp1);
      value.Add(r.resp0).Add(r.resp1);
    }
    e.key = key.Get();
    e.hash = value.Get();
    if (config && command == Command::kCfgRead) {
      EmitPoll(std::move(e));
    } else {
      Emit(std::move(e));
    }
  }

  void OnInterrupts() {
    const std::vector<model::Interrupt> recent = observation_.device().ih().recent();
    const auto& first = observation_.device().ih().interrupts();
    const model::Interrupt* newest = !recent.empty()  ? &recent.back()
                                     : !first.empty() ? &first.back()
                                                      : nullptr;
    if (!newest || (newest->meaning.effect == amd::IhEffect::kIgnored && !strict_)) return;
    Event e = Make(Event::Kind::kInterrupt, newest->at, false);
    e.what = "interrupt " + newest->meaning.text;
    e.key = HashText(e.what);
    Emit(std::move(e));
  }

  void End() {
    const model::Session& session = observation_.session();
    if (!session.end || session.connections.empty()) return;  // cut off: no end to compare
    Event e = Make(Event::Kind::kEnd, {session.last_seq, session.last_time_ns}, false);
    const std::string& closed = session.connections.back().closed_first;
    e.what = "end";
    e.value =
        (closed.empty() ? std::string("open") : closed + " closed") +
        (session.unanswered_total ? fmt::format(", {} unanswered", session.unanswered_total) : "");
    e.key = HashText("end");
    e.hash = HashText(e.value);
    Emit(std::move(e));
  }

  // ---- accesses ----

  // What depends on how long the host waited, not on what was done.
  static bool IsNoise(const model::RegisterAccess& access) {
    switch (access.reg->role) {
      case Role::kIhWptr:
      case Role::kIhRptr:
        return true;
      case Role::kDoorbellInt:
        return !access.write;
      default:
        return false;
    }
  }

  void OnVram(const model::MemoryAccess& access) {
    if (!strict_ && InIhRing(access.offset)) return;
    if (access.size == 8 && access.via == model::Via::kDirect &&
        tables_.count(access.offset >> 12)) {
      if (access.write) OnEntry(access);
      if (!strict_) return;
    }
    if (!strict_ && !access.write && access.size == 8) return;  // a table nobody wrote yet
    Event e = Make(Event::Kind::kVram, access.at, access.write);
    e.bar = 0;
    e.last_seq = access.last ? access.last.call : access.at.call;
    // The driver's own area lies where it lies; buffers count by distance from the one before.
    const bool fixed = strict_ || access.offset < kReservedVram || access.size >= 4096;
    const uint64_t where = fixed ? access.offset : access.offset - vram_next_;
    if (!fixed) vram_next_ = access.offset + access.size;
    e.what = fmt::format("VRAM {:#x}+{:#x}", access.offset, access.size);
    e.key = Hash().Add(access.write ? 'w' : 'r').Add(fixed).Add(where).Add(access.size).Get();
    e.hash = Content(access, e.value);
    if (access.write) {
      Emit(std::move(e));
    } else {
      EmitPoll(std::move(e));
    }
  }

  uint64_t Content(const model::MemoryAccess& access, std::string& text) const {
    trace::BodyView body;
    body.size = access.size;
    body.data = access.data;
    body.all_zero = access.all_zero;
    if (access.data.size() == access.size && access.size <= 8) {
      uint64_t value = 0;
      std::copy(access.data.begin(), access.data.end(), reinterpret_cast<uint8_t*>(&value));
      text = fmt::format("{:#x}", value);
      return value;
    }
    const uint64_t hash = BodyHash(body);
    text = access.all_zero ? "zeros" : fmt::format("content {:016x}", hash);
    return hash;
  }

  void OnEntry(const model::MemoryAccess& access) {
    if (access.data.size() < 8) return;
    const int level = tables_[access.offset >> 12];
    const uint64_t raw = LoadLe<uint64_t>(access.data.data());
    const amd::PteFormat format = observation_.device().gpuvm().format();
    const amd::Pte pte = amd::DecodePte(format, level, raw);
    if (pte.valid && !pte.leaf && !pte.system && level < amd::kPageLeafLevel)
      tables_[pte.address >> 12] = level + 1;
    if (strict_) return;

    const uint64_t flags = raw & ~amd::kPteAddressMask;
    Entry entry{access.offset, flags, 'v', 0, pte.address};
    if (pte.system) {
      entry.space = 'f';  // host memory of no region: its address counts
      if (const auto place = observation_.device().sysmem().Locate(pte.address)) {
        const auto region = regions_.find(place->region->index);
        entry.space = 's';
        entry.index = region != regions_.end() ? region->second.number : place->region->index;
        entry.target = place->offset;
      }
    }
    if (run_count_ > 0 && entry.Continues(run_, run_count_)) {
      run_count_++;
      run_event_.last_seq = access.at.call;
      return;
    }
    FinishRun();
    run_event_ = Make(Event::Kind::kPageTable, access.at, true);
    run_event_.bar = 0;
    run_ = entry;
    run_count_ = 1;
  }

  void FinishRun() {
    FlushPoll();
    if (run_count_ == 0) return;
    const std::string target = run_.space == 's'
                                   ? fmt::format("region {}+{:#x}", run_.index, run_.target)
                               : run_.space == 'f' ? fmt::format("DMA {:#x}", run_.target)
                                                   : fmt::format("VRAM {:#x}", run_.target);
    run_event_.what = fmt::format("page table {:#x}", run_.at);
    run_event_.value = fmt::format("{} entries -> {} flags {:#x}", run_count_, target, run_.flags);
    run_event_.key = Hash().Add('P').Add(run_.at).Get();
    run_event_.hash = Hash()
                          .Add(run_count_)
                          .Add(run_.flags)
                          .Add(static_cast<uint64_t>(run_.space))
                          .Add(run_.index)
                          .Add(run_.target)
                          .Get();
    run_count_ = 0;
    Push(std::move(run_event_));
  }

  void OnSysmem(const model::MemoryAccess& access) {
    // Small reads are polls of signals; ring words and pointers show as packets and doorbells.
    if (!strict_ && !access.write && access.size <= 8) return;
    if (!strict_ && access.write && access.size <= 8) return;
    Event e = Make(Event::Kind::kSysmem, access.at, access.write);
    const auto region = regions_.find(access.index);
    const uint64_t number = region != regions_.end() ? region->second.number : access.index;
    if (!strict_ && region != regions_.end() && region->second.size >= (16u << 20))
      return;  // rings
    e.what = fmt::format("sysmem {}+{:#x}+{:#x}", access.index, access.offset, access.size);
    e.key =
        Hash().Add(access.write ? 'y' : 'Y').Add(number).Add(access.offset).Add(access.size).Get();
    e.hash = Content(access, e.value);
    Emit(std::move(e));
  }

  void OnBar(const model::MemoryAccess& access) {
    Event e = Make(Event::Kind::kBar, access.at, access.write);
    e.bar = static_cast<int>(access.index);
    e.last_seq = access.last ? access.last.call : access.at.call;
    e.what = fmt::format("bar{}+{:#x}+{:#x}", access.index, access.offset, access.size);
    e.key = Hash()
                .Add(access.write ? 'b' : 'B')
                .Add(access.index)
                .Add(access.offset)
                .Add(access.size)
                .Get();
    e.hash = Content(access, e.value);
    if (access.write) {
      Emit(std::move(e));
    } else {
      EmitPoll(std::move(e));
    }
  }

  void OnPacket(const model::QueuePacketEvent& event) {
    const amd::WalkItem& item = *event.visited.item;
    if (item.kind == amd::WalkItem::Kind::kPadding || item.kind == amd::WalkItem::Kind::kUnwritten)
      return;
    const amd::DecodedPacket& p = item.packet;
    if (item.kind == amd::WalkItem::Kind::kPacket && p.role == amd::PacketRole::kNop) return;
    Event e = Make(Event::Kind::kPacket, {event.call, event.ns}, true);
    e.what = fmt::format(
        "{} {}", event.queue->name,
        p.name.empty() ? std::string(amd::WalkKindText(item.kind)) : std::string(p.name));
    e.value = item.kind == amd::WalkItem::Kind::kPacket ? model::PacketText(p)
                                                        : fmt::format("{} bytes", item.size);
    e.key = Hash().Add(e.what).Add(event.visited.depth).Add(p.dwords).Get();
    e.hash = PacketValue(p);
    std::erase(waiting_, event.call);
    Push(std::move(e));
  }

  uint64_t PacketValue(const amd::DecodedPacket& p) {
    Hash hash;
    if (strict_) return XXH3_64bits(p.raw.data(), p.raw.size());
    const auto wait = amd::WaitOf(p);
    const auto fence = amd::FenceOf(p);
    const std::optional<uint64_t> word = wait && wait->memory ? std::optional(wait->address)
                                         : fence              ? std::optional(fence->address)
                                                              : std::nullopt;
    const uint64_t base = word ? timeline_[*word] : 0;
    for (const amd::PacketField& field : p.fields) {
      switch (field.kind) {
        case amd::FieldKind::kAddress:
          hash.Add(Address(field.value));
          break;
        case amd::FieldKind::kReference:
          hash.Add(word ? field.value - base : field.value);
          break;
        case amd::FieldKind::kData:
          hash.Add(fence ? field.value - base : field.value);
          break;
        // The address of the kernel's arguments moves with every launch.
        case amd::FieldKind::kRegister:
          hash.Add(field.reg);
          if (!IsUserData(field.name)) hash.Add(field.value);
          break;
        default:
          hash.Add(field.value);
      }
    }
    if (fence) timeline_[fence->address] = fence->value;
    return hash.Get();
  }

  static bool IsUserData(std::string_view name) {
    return name.find("USER_DATA") != std::string_view::npos;
  }

  // Staging buffers are used in turn: which one it is does not matter.
  uint64_t Address(uint64_t va) const {
    const model::VaTarget target = observation_.device().gpuvm().Translate(va);
    if (target.kind == model::VaTarget::Kind::kSysmem) {
      const auto region = regions_.find(target.region);
      if (region != regions_.end() && region->second.size == kStagingSize)
        return Hash().Add("staging").Add(target.region_offset).Get();
    }
    return va;
  }

  bool InIhRing(uint64_t offset) const {
    const model::Ih& ih = observation_.device().ih();
    return offset >= ih.ring_base() && offset < ih.ring_base() + ih.ring_size();
  }

  // ---- handing out ----

  Event Make(Event::Kind kind, model::Stamp at, bool write) const {
    Event e;
    e.kind = kind;
    e.seq = e.last_seq = at.call;
    e.time_ns = at.time_ns;
    e.write = write;
    if (const model::BootSession* boot = observation_.device().boot().current();
        boot && !boot->phases.empty())
      e.phase = boot->phases.back().phase;
    return e;
  }

  // A read: the last of a run of equal reads stands for all.
  void EmitPoll(Event event) {
    if (poll_ && poll_->key == event.key && run_count_ == 0 && !strict_) {
      event.seq = poll_->seq;
      event.time_ns = poll_->time_ns;
      poll_ = std::move(event);
      return;
    }
    FinishRun();
    poll_ = std::move(event);
  }

  void FlushPoll() {
    if (!poll_) return;
    Event event = std::move(*poll_);
    poll_.reset();
    Push(std::move(event));
  }

  void Emit(Event event) {
    FinishRun();
    Push(std::move(event));
  }

  // A packet belongs to its doorbell, wherever the proxy's copy of the ring stands in the trace:
  // that depends on how far its thread lagged. It comes before the doorbell that announced it.
  void Push(Event event) {
    if (!filter_.Takes(event)) return;
    event.key = Hash().Add(event.key).Add(static_cast<uint64_t>(event.kind)).Get();
    auto at = ready_.end();
    if (event.kind == Event::Kind::kPacket) {
      const auto before = [&](const Event& other) {
        return other.seq < event.seq ||
               (other.seq == event.seq && other.kind == Event::Kind::kPacket);
      };
      while (at != ready_.begin() && !before(*std::prev(at))) --at;
    }
    ready_.insert(at, std::move(event));
  }

  // Packets of a doorbell in `ready_` may still come.
  bool Held() {
    while (!waiting_.empty() && waiting_.front() < ready_.front().seq) waiting_.pop_front();
    return !waiting_.empty() && ready_.size() < kMaxHeld;
  }

  struct Entry {
    uint64_t at = 0;  // VRAM offset of the first entry
    uint64_t flags = 0;
    char space = 'v';
    uint64_t index = 0;
    uint64_t target = 0;
    bool Continues(const Entry& first, uint64_t count) const {
      return at == first.at + count * 8 && flags == first.flags && space == first.space &&
             index == first.index && target == first.target + count * 4096;
    }
  };
  struct RegionSeen {
    uint64_t number = 0;  // in the order of the trace
    uint64_t size = 0;
  };

  std::unique_ptr<trace::TraceReader> reader_;
  const bool strict_;
  const Filter filter_;
  explain::Observation observation_;
  static constexpr size_t kMaxHeld = 1024;
  std::deque<Event> ready_;
  std::deque<uint64_t> waiting_;  // doorbells in `ready_` without packets yet
  bool ended_ = false;

  wire::RequestHeader last_request_;
  uint64_t last_seq_ = 0;
  uint64_t last_time_ns_ = 0;
  bool answered_ = false;

  std::optional<Event> poll_;
  Entry run_;
  uint64_t run_count_ = 0;
  Event run_event_;

  std::unordered_map<uint64_t, int> tables_;  // page of VRAM -> level of the table in it
  std::unordered_map<uint32_t, RegionSeen> regions_;
  uint64_t next_region_ = 0;
  std::unordered_map<uint64_t, uint64_t> doorbells_;
  std::unordered_map<uint64_t, uint64_t> timeline_;  // last value signalled at an address
  uint64_t vram_next_ = 0;
};

EventStream::EventStream(std::unique_ptr<trace::TraceReader> reader, bool strict, Filter filter)
    : impl_(std::make_unique<Impl>(std::move(reader), strict, std::move(filter))) {}
EventStream::~EventStream() = default;

std::optional<Event> EventStream::Next() {
  return impl_->Next();
}
const explain::Observation& EventStream::observation() const {
  return impl_->observation();
}
explain::Observation::File EventStream::file() const {
  return impl_->file();
}
bool EventStream::incomplete() const {
  const explain::Observation::File f = impl_->file();
  return !f.whole || f.lost_calls > 0;
}
const trace::TraceReader& EventStream::reader() const {
  return impl_->reader();
}

}  // namespace tg::diff
