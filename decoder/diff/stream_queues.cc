// Doorbells, and the packets that they announce.
#include <algorithm>

#include "decoder/diff/stream.h"
#include "schemas/wire/commands.h"

namespace tg::diff {

using amd::FieldKind;
using amd::WalkItem;

void EventStream::Impl::OnDoorbell(const model::DoorbellWrite& doorbell) {
  FlushRuns();
  Draft draft = Make(Event::Kind::kDoorbell, doorbell.at, true);
  Event& e = *draft.event;
  e.bar = 2;
  e.command = static_cast<uint8_t>(wire::Command::kMmioWrite);
  e.address = doorbell.offset;
  e.number = doorbell.value;
  if (doorbell.last) e.last_seq = doorbell.last.call;
  Token& token = draft.token;
  token.key = Hash().Add('D').Add(doorbell.offset).Add(doorbell.size).Get();
  if (strict_)
    token.value = doorbell.value;
  else
    token.Add({Soft::Class(Soft::kDoorbell, doorbell.offset), doorbell.value});

  // Packets whose bytes were there already came just now.
  OpenDoorbell open = std::move(open_[doorbell.at.call]);
  if (!open.parts) open.parts = std::make_shared<Parts>();
  if (open.event) {
    e.packets = std::move(open.event->packets);
  }
  open.event = draft.event;
  open.parts->channel = doorbell.offset;
  const model::Queues& queues = queues_.queues();
  if (const auto index = queues.FindByDoorbell(doorbell.offset)) {
    const model::Queue& queue = queues.queues()[*index];
    e.queue = queue.name;
    if (!queue.sdma()) compute_doorbells_++;
    const bool announced =
        !queue.submissions.empty() && queue.submissions.back().doorbell_call == doorbell.at.call;
    open.parts->known = !open.parts->list.empty() || !announced ||
                        queue.submissions.back().content == model::Submission::Content::kObserved;
    // A queue that was set up before the trace began is not known to begin where it does.
    if (!queue.known_format) open.parts->known = false;
  }
  e.packets_known = open.parts->known;
  token.parts = open.parts;
  if (open.parts->known)
    open_.erase(doorbell.at.call);
  else
    open_[doorbell.at.call] = std::move(open);
  Push(std::move(draft));

  const auto unfinished = options_.unfinished.find(doorbell.at.call);
  if (unfinished == options_.unfinished.end()) return;
  Draft never = Make(Event::Kind::kFence, doorbell.at, false);
  never.event->bar = 2;
  never.event->what_text = unfinished->second;
  never.token.solo = true;
  never.token.key = Hash().Add("never finished").Add(doorbell.offset).Get();
  Push(std::move(never));
}

void EventStream::Impl::OnPacket(const model::QueuePacketEvent& event) {
  const WalkItem& item = *event.visited.item;
  auto found = open_.find(event.call);
  if (found == open_.end()) {
    // Its doorbell is being written now; or it was handed out long ago, and nobody will ask.
    if (!record_ || record_->call != event.call) return;
    found = open_.emplace(event.call, OpenDoorbell()).first;
    found->second.event = std::make_shared<Event>();
    found->second.parts = std::make_shared<Parts>();
  }
  OpenDoorbell& open = found->second;
  open.parts->known = true;
  open.parts->bytes = event.submission->end - event.submission->begin.value_or(0);
  open.event->packets_known = true;
  if (item.kind == WalkItem::Kind::kPadding || item.kind == WalkItem::Kind::kUnwritten) return;
  if (item.kind == WalkItem::Kind::kPacket && item.packet.role == amd::PacketRole::kNop) return;

  PacketSeen seen;
  seen.format = event.queue->format;
  if (event.visited.depth > 0 && seen.format.format == amd::RingFormat::kAql)
    seen.format.format = amd::RingFormat::kPm4;
  seen.kind = item.kind;
  seen.depth = event.visited.depth;
  seen.size = item.size;
  seen.raw.assign(item.packet.raw.begin(), item.packet.raw.end());
  open.parts->list.push_back(PartOf(event));
  open.event->packets.push_back(std::move(seen));
}

uint64_t EventStream::Impl::StagingCount() const {
  return std::max<uint64_t>(staging_, 1);
}

// The staging buffer that an address lies in. Two of its pages are looked at, so that one entry of
// the page tables that is wrong does not hide it: that entry is an event of its own.
const EventStream::Impl::RegionSeen* EventStream::Impl::Staging(uint64_t va) const {
  const uint64_t base = va & ~(kStagingSize - 1);
  for (const uint64_t at : {uint64_t{0}, kStagingSize - 4096, uint64_t{4096}}) {
    const model::VaTarget target = device_.gpuvm().Translate(base + at);
    if (target.kind != model::VaTarget::Kind::kSysmem || target.region_offset != at) continue;
    const RegionSeen* region = FindRegion(target.region);
    if (region && region->size == kStagingSize) return region;
  }
  return nullptr;
}

// Staging buffers are used in turn: which one comes first does not matter.
void EventStream::Impl::AddAddress(uint64_t va, Hash& hash, std::vector<Soft>& soft) const {
  if (const RegionSeen* region = Staging(va)) {
    hash.Add("staging").Add(va % kStagingSize);
    soft.push_back({Soft::Class(Soft::kStaging, StagingCount()), region->number});
    return;
  }
  hash.Add("va");
  soft.push_back({Soft::Class(Soft::kVa), va});
}

Part EventStream::Impl::PartOf(const model::QueuePacketEvent& event) {
  const WalkItem& item = *event.visited.item;
  const amd::DecodedPacket& p = item.packet;
  Part part;
  Hash hash;
  hash.Add(static_cast<uint64_t>(item.kind)).Add(event.visited.depth);
  part.broken = item.kind != WalkItem::Kind::kPacket;
  if (part.broken || strict_) {
    part.fixed = hash.Add(item.size).Add(HashBytes(p.raw)).Get();
    return part;
  }
  hash.Add(p.op).Add(p.sub_op).Add(p.dwords);
  const auto wait = amd::WaitOf(p);
  const auto fence = amd::FenceOf(p);
  std::optional<uint64_t> signal;
  if (wait && wait->memory) signal = wait->address;
  if (fence) signal = fence->address;
  const auto timeline = [&](uint64_t value) {
    if (signal)
      part.soft.push_back({Soft::Class(Soft::kTimeline, *signal), value});
    else
      hash.Add(value);
  };
  for (const amd::PacketField& field : p.fields) {
    switch (field.kind) {
      case FieldKind::kAddress:
        if (field.name == "kernarg")
          part.soft.push_back({Soft::Class(Soft::kArgument), field.value});
        else if (field.value == 0)
          hash.Add("none");
        else
          AddAddress(field.value, hash, part.soft);
        break;
      case FieldKind::kReference:
      case FieldKind::kData:
        timeline(field.value);
        break;
      case FieldKind::kRegister:
        hash.Add(field.reg);
        // Halves of addresses; whole, they are fields of their own.
        if (field.name.find("USER_DATA") != std::string_view::npos)
          part.soft.push_back({Soft::Class(Soft::kArgument, field.reg), field.value});
        else if (field.name.find("PGM_LO") == std::string_view::npos &&
                 field.name.find("PGM_HI") == std::string_view::npos &&
                 field.name.find("SCRATCH_BASE") == std::string_view::npos)
          hash.Add(field.value);
        break;
      default:
        hash.Add(field.value);
    }
  }
  // What is written lies behind the address and its control words.
  if (p.role == amd::PacketRole::kWrite && p.raw.size() > 16)
    hash.Add(HashBytes(p.raw.subspan(16)));
  part.fixed = hash.Get();
  return part;
}

}  // namespace tg::diff
