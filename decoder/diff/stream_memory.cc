// VRAM, page tables, other BARs, shared memory over TCP.
#include <algorithm>

#include "decoder/diff/stream.h"
#include "schemas/amd/pte.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::diff {
namespace {

constexpr size_t kMaxInPieces = 64;
constexpr uint64_t kWordsLooked = 4096;  // bytes of a small block in which addresses are looked for
constexpr uint64_t kAddressSpace = 1ull << 46;  // far more than what is ever mapped

bool IsVa(uint64_t word) {
  return word >= amd::kVaStart && word < amd::kVaStart + kAddressSpace;
}

bool Zeros(std::span<const uint8_t> data) {
  return std::all_of(data.begin(), data.end(), [](uint8_t b) { return b == 0; });
}

}  // namespace

const EventStream::Impl::RegionSeen* EventStream::Impl::FindRegion(uint32_t index) const {
  const auto found = regions_.find(index);
  return found == regions_.end() ? nullptr : &found->second;
}

bool EventStream::Impl::InIhRing(uint64_t offset) const {
  const model::Ih& ih = device_.ih();
  return offset >= ih.ring_base() && offset - ih.ring_base() < ih.ring_size();
}

// What a block holds. The same whatever part of it the trace kept: the writer's hash counts where
// only the head is there. In small blocks words that are GPU addresses count as such.
void EventStream::Impl::Content(const model::MemoryAccess& access, Draft& draft, bool addresses) {
  Event& e = *draft.event;
  if (access.data.size() == access.size && access.size <= 8 && !access.all_zero) {
    e.number = 0;
    std::copy(access.data.begin(), access.data.end(), reinterpret_cast<uint8_t*>(&e.number));
    draft.token.value = e.number;
    return;
  }
  const bool whole = access.data.size() == access.size;
  if (access.all_zero || (whole && Zeros(access.data))) {
    e.content = Event::Content::kZeros;
    draft.token.value = access.size <= 8 ? 0 : 1;
    return;
  }
  e.content = Event::Content::kHash;
  const trace::BodyView* body = nullptr;
  if (record_ && record_->kind == trace::Record::Kind::kRequest) body = &record_->request.payload;
  if (record_ && record_->kind == trace::Record::Kind::kReply) body = &record_->reply.body;
  if (body && body->streamed) {
    e.content = Event::Content::kPieces;
    return;
  }
  if (!whole) {
    e.number = body && body->xxh3 ? *body->xxh3 : 0;  // 0: nobody knows
    draft.token.value = e.number;
    return;
  }
  e.number = HashBytes(access.data);
  draft.token.value = e.number;
  if (!addresses || strict_ || access.size > kWordsLooked || access.size % 8 != 0) return;
  auto soft = std::make_shared<std::vector<Soft>>();
  Hash hash;
  for (size_t at = 0; at < access.data.size(); at += 8) {
    const auto word = LoadLe<uint64_t>(access.data.data() + at);
    if (!IsVa(word)) {
      hash.Add(word);
      continue;
    }
    hash.Add(at);
    soft->push_back({Soft::Class(Soft::kVa), word});
  }
  if (soft->empty()) return;
  draft.token.value = hash.Get();
  draft.token.more = std::move(soft);
}

// What came in pieces (how many depends on the socket) is an event when the last one is there.
void EventStream::Impl::EmitAccess(Draft draft) {
  if (draft.event->content == Event::Content::kPieces) {
    if (in_pieces_.size() >= kMaxInPieces) in_pieces_.erase(in_pieces_.begin());
    in_pieces_[draft.event->seq] = std::move(draft);
  } else if (draft.event->write) {
    EmitWrite(std::move(draft));
  } else {
    EmitRead(std::move(draft));
  }
}

void EventStream::Impl::OnLastChunk(const tinygpu::trace::BodyChunk& chunk, uint64_t newest) {
  if (chunk.calls_back() > newest) return;
  const auto found = in_pieces_.find(newest - chunk.calls_back());
  if (found == in_pieces_.end()) return;
  Draft draft = std::move(found->second);
  in_pieces_.erase(found);
  // Cut off: what came of it depends on when.
  if (chunk.received() > 0 && chunk.received() < draft.event->size) return;
  draft.event->content = chunk.all_zero() ? Event::Content::kZeros : Event::Content::kHash;
  draft.event->number = chunk.xxh3();
  if (draft.token.value == 0) draft.token.value = chunk.all_zero() ? 1 : chunk.xxh3();
  EmitAccess(std::move(draft));
}

// ---- VRAM ------------------------------------------------------------------------------------

void EventStream::Impl::OnVram(const model::MemoryAccess& access) {
  if (!strict_ && !access.write && InIhRing(access.offset)) return;
  const auto table = tables_.find(access.offset >> 12);
  if (access.size == 8 && access.via == model::Via::kDirect && table != tables_.end()) {
    if (access.write)
      OnEntryWrite(access);
    else
      OnEntryRead(access);
    if (!strict_) return;
  }
  const bool ones = access.data.size() == 8 && LoadLe<uint64_t>(access.data.data()) == ~0ull;
  // A table that nobody wrote yet.
  if (!strict_ && !access.write && access.size == 8 && !ones) return;
  if (access.write && table != tables_.end()) table->second.entries.reset();
  Draft draft = Make(Event::Kind::kVram, access.at, access.write);
  Event& e = *draft.event;
  e.bar = 0;
  e.command =
      static_cast<uint8_t>(access.write ? wire::Command::kMmioWrite : wire::Command::kMmioRead);
  if (access.last) e.last_seq = access.last.call;
  e.address = access.offset;
  e.size = access.size;
  Content(access, draft, access.offset >= kReservedVram);
  Hash key;
  key.Add(access.write ? 'w' : 'r').Add(access.size);
  if (strict_ || access.offset < kReservedVram)
    key.Add(access.offset);
  else
    draft.token.Add({Soft::Class(Soft::kVram), access.offset});
  draft.token.key = key.Get();
  if (access.write && folded_alone_) e.times = access.times;
  EmitAccess(std::move(draft));
}

void EventStream::Impl::OnMemory(const model::MemoryAccess& access) {
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

// ---- page tables -----------------------------------------------------------------------------

bool EventStream::Impl::Entry::Continues(const Entry& first, uint64_t count) const {
  return at == first.at + count * 8 && flags == first.flags && target == first.target &&
         region == first.region && unknown == first.unknown &&
         (target == Event::Target::kDma ? count < amd::kPageTableEntries
                                        : to == first.to + count * 4096);
}

// Some regions' addresses are not in the trace, so that a DMA address may be of one of them.
bool EventStream::Impl::RegionsUnknown() const {
  if (gap_seen_) return true;
  const auto& regions = device_.sysmem().regions();
  return std::any_of(regions.begin(), regions.end(),
                     [](const auto& r) { return r.second.ranges.empty(); });
}

void EventStream::Impl::OnEntryWrite(const model::MemoryAccess& access) {
  if (access.data.size() < 8) return;
  Table& table = tables_[access.offset >> 12];
  const uint64_t raw = LoadLe<uint64_t>(access.data.data());
  if (!table.entries) table.entries = std::make_unique<Entries>();
  table.entries->word[access.offset % 4096 / 8] = raw;
  table.entries->known.set(access.offset % 4096 / 8);
  const int level = table.level;
  const amd::Pte pte = amd::DecodePte(device_.gpuvm().format(), level, raw);
  if (pte.valid && !pte.leaf && !pte.system && level < amd::kPageLeafLevel)
    tables_[pte.address >> 12].level = level + 1;
  if (strict_) return;

  Entry entry;
  entry.at = access.offset;
  entry.flags = raw & ~amd::kPteAddressMask;
  entry.to = pte.address;
  if (pte.system) {
    entry.target = Event::Target::kDma;
    if (const auto place = device_.sysmem().Locate(pte.address)) {
      const RegionSeen* region = FindRegion(place->region->index);
      entry.target = Event::Target::kRegion;
      entry.region = region ? static_cast<uint32_t>(region->number) : place->region->index;
      entry.to = place->offset;
    } else {
      entry.unknown = RegionsUnknown();
    }
  }
  if (run_count_ > 0 && entry.Continues(run_, run_count_)) {
    run_count_++;
    run_draft_.event->last_seq = access.at.call;
  } else {
    FlushRuns();
    run_draft_ = Make(Event::Kind::kPageTable, access.at, true);
    run_draft_.event->bar = 0;
    run_draft_.event->command = static_cast<uint8_t>(wire::Command::kMmioWrite);
    run_ = entry;
    run_count_ = 1;
    run_pages_.reset();
  }
  if (entry.target != Event::Target::kDma) return;
  if (!run_pages_) run_pages_ = std::make_shared<std::vector<Soft>>();
  run_pages_->push_back({Soft::Class(Soft::kDmaPage), entry.to >> 12});
}

void EventStream::Impl::FlushEntries() {
  if (run_count_ == 0) return;
  Draft draft = std::move(run_draft_);
  Event& e = *draft.event;
  e.address = run_.at;
  e.size = run_count_;
  e.target = run_.target;
  e.number = run_.to;
  e.index = run_.region;
  e.flags = run_.flags;
  Token& token = draft.token;
  token.key = Hash().Add('P').Get();
  // An entry that leads to host memory of unknown region may stand for one of known region; one
  // that leads nowhere may not.
  const bool system = run_.target != Event::Target::kVram;
  const bool nowhere = run_.target == Event::Target::kDma && !run_.unknown;
  token.value = Hash().Add(run_count_).Add(run_.flags).Add(system).Add(nowhere).Get();
  if (run_.at >= kReservedVram)
    token.Add({Soft::Class(Soft::kVram), run_.at});
  else
    token.key = Hash().Add('P').Add(run_.at).Get();
  if (!system) {
    token.Add({Soft::Class(Soft::kVram), run_.to});
  } else if (run_.target == Event::Target::kRegion) {
    token.Add({Soft::Class(Soft::kRegion), run_.region});
    token.Add({Soft::Class(Soft::kPlace), run_.to});
  } else {
    token.any_host = run_.unknown;
    token.more = std::move(run_pages_);
  }
  run_pages_.reset();
  run_count_ = 0;
  Push(std::move(draft));
}

// The driver reads tables back while it walks them. That is worth an event when it did not get what
// it had written.
void EventStream::Impl::OnEntryRead(const model::MemoryAccess& access) {
  if (strict_ || access.data.size() < 8) return;
  const auto raw = LoadLe<uint64_t>(access.data.data());
  const Table& table = tables_[access.offset >> 12];
  const size_t place = access.offset % 4096 / 8;
  const bool known = table.entries && table.entries->known.test(place);
  const uint64_t written = known ? table.entries->word[place] : 0;
  if (raw == written || (!known && raw != ~0ull)) return;
  Draft draft = Make(Event::Kind::kPageTable, access.at, false);
  Event& e = *draft.event;
  e.bar = 0;
  e.command = static_cast<uint8_t>(wire::Command::kMmioRead);
  e.entry_read = true;
  e.address = access.offset;
  e.size = 1;
  e.number = raw;
  e.flags = written;
  // Where the two differ: the same in every run, whatever the addresses.
  draft.token.key = Hash().Add('p').Get();
  draft.token.value = raw == ~0ull ? raw : raw ^ written;
  if (access.offset >= kReservedVram)
    draft.token.Add({Soft::Class(Soft::kVram), access.offset});
  else
    draft.token.key = Hash().Add('p').Add(access.offset).Get();
  EmitRead(std::move(draft));
}

// ---- shared memory over TCP, other BARs ------------------------------------------------------

void EventStream::Impl::OnSysmem(const model::MemoryAccess& access) {
  if (options_.other_transport) return;
  // Small reads are polls of signals.
  const bool small = access.size <= 8;
  if (!strict_ && !access.write && small) return;
  const RegionSeen* region = FindRegion(access.index);
  const bool ring = region && region->size >= kLeastRing && !strict_;
  Draft draft = Make(Event::Kind::kSysmem, access.at, access.write);
  Event& e = *draft.event;
  e.command =
      static_cast<uint8_t>(access.write ? wire::Command::kSysmemWrite : wire::Command::kSysmemRead);
  e.index = region ? static_cast<uint32_t>(region->number) : access.index;
  e.address = access.offset;
  e.size = access.size;
  if (access.last) e.last_seq = access.last.call;
  Content(access, draft, true);
  Token& token = draft.token;
  Hash key;
  key.Add(access.write ? 'y' : 'Y').Add(access.size);
  if (strict_) {
    key.Add(e.index).Add(access.offset);
  } else {
    token.Add({Soft::Class(Soft::kRegion), e.index});
    if (ring) {
      // Its words are compared as packets; where they lie moves with every submission.
      token.Add({Soft::Class(Soft::kRing, e.index), access.offset});
      token.value = 0;
      if (e.content == Event::Content::kPieces) e.content = Event::Content::kHash;
      token.more.reset();
    } else if (region && region->size == kStagingSize) {
      key.Add(access.offset);
      token.softs = 0;
    } else {
      key.Add(access.offset);
      if (access.write && small && e.content == Event::Content::kNumber) {
        token.Add(
            {Soft::Class(Soft::kWord, Hash().Add(e.index).Add(access.offset).Get()), e.number});
        token.value = 0;
      }
    }
  }
  token.key = key.Get();
  EmitAccess(std::move(draft));
}

void EventStream::Impl::OnBar(const model::MemoryAccess& access) {
  Draft draft = Make(Event::Kind::kBar, access.at, access.write);
  Event& e = *draft.event;
  e.bar = static_cast<int8_t>(std::min<uint32_t>(access.index, 127));
  e.command =
      static_cast<uint8_t>(access.write ? wire::Command::kMmioWrite : wire::Command::kMmioRead);
  if (access.last) e.last_seq = access.last.call;
  e.address = access.offset;
  e.size = access.size;
  Content(access, draft, false);
  draft.token.key = Hash()
                        .Add(access.write ? 'b' : 'B')
                        .Add(access.index)
                        .Add(access.offset)
                        .Add(access.size)
                        .Get();
  if (access.write && folded_alone_) e.times = access.times;
  EmitAccess(std::move(draft));
}

}  // namespace tg::diff
