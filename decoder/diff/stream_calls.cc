// Requests that are no accesses, configuration space, registers, interrupts, how the trace ends.
#include <fmt/format.h>

#include "decoder/diff/stream.h"
#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"

namespace tg::diff {

using model::Role;
using trace::Record;
using wire::Command;
namespace pb = tinygpu::trace;

namespace {

// BIF_DOORBELL_INT_CNTL: status of the controller's and the ATHUB's fatal errors.
constexpr uint32_t kRasErrors = 0x6;

// What depends on how long the host waited, not on what was done.
bool IsNoise(const model::RegisterAccess& access) {
  switch (access.reg->role) {
    case Role::kIhWptr:
    case Role::kIhRptr:
      return true;
    case Role::kDoorbellInt:
      return !access.write && (access.value & kRasErrors) == 0;
    default:
      return false;
  }
}

}  // namespace

void EventStream::Impl::OnRegister(const model::RegisterAccess& access) {
  const Role role = access.reg->role;
  const bool of_wait = role == Role::kIhWptr || role == Role::kIhRptr || role == Role::kDoorbellInt;
  if (!strict_ && of_wait && !access.write) {
    // A card that is gone shows there as well as anywhere; once is enough.
    const bool ones = access.value == 0xffffffff;
    const bool again = std::exchange(ones_seen_, ones);
    if (ones ? again : IsNoise(access)) return;
  } else if (!strict_ && IsNoise(access)) {
    return;
  }
  Draft draft = Make(Event::Kind::kRegister, access.at, access.write);
  Event& e = *draft.event;
  const model::RegisterState& reg = *access.reg;
  e.bar = static_cast<int8_t>(reg.bar);
  e.command = static_cast<uint8_t>(access.write ? Command::kMmioWrite : Command::kMmioRead);
  if (access.last) e.last_seq = access.last.call;
  e.name = reg.name();
  e.address = reg.address;
  e.die = reg.die;
  if (reg.hit) e.index = reg.hit.instance;
  e.number = access.value;
  Hash key;
  key.Add(access.write ? 'W' : 'R').Add(reg.bar);
  if (options_.other_chip && !e.name.empty())
    key.Add(e.name).Add(e.index).Add(e.die);
  else
    key.Add(reg.address);
  draft.token.key = key.Get();
  draft.token.value = access.value;
  if (!access.write) {
    EmitRead(std::move(draft));
    return;
  }
  if (folded_alone_) e.times = access.times;
  EmitWrite(std::move(draft));
}

void EventStream::Impl::OnConnect(model::Stamp at) {
  regions_.clear();
  next_region_ = 0;
  staging_ = 0;
  closed_first_.clear();
  if (!std::exchange(connected_, true)) return;  // every trace begins with one
  Draft draft = Make(Event::Kind::kCall, at, false);
  draft.event->what_text = "new connection";
  draft.token.key = Hash().Add("connect").Get();
  draft.token.connect = true;
  Emit(std::move(draft));
}

bool EventStream::Impl::Unanswered() const {
  if (last_seq_ == 0 || answered_) return false;
  const wire::CommandInfo* info = wire::FindCommand(last_request_.command);
  return info && info->reply;
}

void EventStream::Impl::OnRequest(const Record& record) {
  if (Unanswered()) unanswered_++;
  connected_ = true;
  last_request_ = record.request.header;
  last_seq_ = record.call;
  last_time_ns_ = record.time_ns;
  answered_ = false;
  const bool refused = !record.request.refused.empty();
  if (!refused && !record.request.truncated) return;
  Draft draft = Make(Event::Kind::kCall, {record.call, record.time_ns}, true);
  Event& e = *draft.event;
  e.command = last_request_.command;
  e.what_text = model::CallText(last_request_);
  e.value_text = refused ? fmt::format("kept from the server: {}",
                                       model::Printable(std::string(record.request.refused)))
                         : "cut off by the client";
  draft.token.key = Hash().Add(e.what_text).Get();
  draft.token.value = Hash().Add(refused ? "refused" : "cut").Get();
  Emit(std::move(draft));
}

void EventStream::Impl::OnReply(const Record& record) {
  if (record.call != last_seq_ || answered_) return;
  answered_ = true;
  const wire::ReplyHeader& r = record.reply.reply;
  const auto command = static_cast<Command>(last_request_.command);
  const bool access = command == Command::kMmioRead || command == Command::kSysmemRead;
  if (access && r.status == 0) return;
  if (options_.other_transport &&
      (command == Command::kProbe || command == Command::kPing || command == Command::kSysmemRead))
    return;
  const bool config = command == Command::kCfgRead || command == Command::kCfgWrite;
  const bool sysmem = command == Command::kMapSysmemFd || command == Command::kMapSysmem;
  Draft draft = Make(config ? Event::Kind::kConfig : Event::Kind::kCall, {last_seq_, last_time_ns_},
                     command == Command::kCfgWrite);
  Event& e = *draft.event;
  e.command = last_request_.command;
  e.what_text = model::CallText(last_request_);
  if (config) e.what_text += fmt::format(" size {}", last_request_.arg1);
  Hash key, value;
  if (sysmem && options_.other_transport)
    key.Add("map sysmem").Add(last_request_.arg0).Add(last_request_.arg1);
  else
    key.Add(last_request_.command)
        .Add(last_request_.bar)
        .Add(last_request_.arg0)
        .Add(last_request_.arg1);
  value.Add(r.status);
  if (r.status != 0) {
    const auto& text = record.reply.body.data;
    const std::string said =
        model::Printable({reinterpret_cast<const char*>(text.data()), text.size()});
    e.value_text = said.empty() ? std::string("refused") : "refused: " + said;
    value.Add(said);
  } else if (command == Command::kMapBar) {
    // The larger word is the address, whatever the revision; only the size counts.
    const wire::BarWords words =
        wire::MapBarWords(r, r.resp1 > r.resp0 ? wire::Revision::kR1 : wire::Revision::kR2);
    e.value_text = fmt::format("size {:#x}", words.size);
    value.Add(words.size);
    if (strict_) value.Add(words.address);
  } else if (sysmem) {
    e.value_text = fmt::format("asked {:#x}", last_request_.arg0);
    if (command == Command::kMapSysmemFd && !options_.other_transport) {
      e.value_text += fmt::format(", granted {:#x}", r.resp0);
      value.Add(r.resp0);
    }
    if (strict_) value.Add(r.resp1);
    regions_[static_cast<uint32_t>(r.resp1)] = {next_region_++, last_request_.arg0};
    if (last_request_.arg0 == kStagingSize) staging_++;
  } else if (command == Command::kCfgWrite) {
    e.value_text = fmt::format("{:#x}", last_request_.arg2);
    value.Add(last_request_.arg2);
  } else {
    e.value_text =
        config ? fmt::format("{:#x}", r.resp0) : fmt::format("{:#x} {:#x}", r.resp0, r.resp1);
    value.Add(r.resp0).Add(r.resp1);
  }
  draft.token.key = key.Get();
  draft.token.value = value.Get();
  if (command == Command::kCfgRead)
    EmitRead(std::move(draft));
  else
    Emit(std::move(draft));
}

void EventStream::Impl::OnPacketRecord(const Record& record) {
  const pb::Packet& packet = *record.packet;
  if (packet.has_loss()) {
    // Where only copies of shared memory were lost no call is missing.
    const pb::Loss& loss = packet.loss();
    if (loss.calls() > 0 || loss.cause() == pb::Loss::KEEP_LIMIT)
      Gap(record.call, record.time_ns, fmt::format("{} calls were not recorded", loss.calls()));
    else
      gap_seen_ = true;
  }
  if (packet.has_end()) end_seen_ = true;
  if (packet.has_chunk() && packet.chunk().last()) OnLastChunk(packet.chunk(), record.call);
  if (packet.has_event() && packet.event().kind() == pb::SessionEvent::DISCONNECT)
    closed_first_ = packet.event().closed_first();
  if (packet.has_raw() && !std::exchange(raw_seen_, true)) {
    Draft draft = Make(Event::Kind::kCall, {record.call, record.time_ns}, false);
    draft.event->what_text = "stream without framing";
    draft.token.key = Hash().Add("raw").Get();
    Emit(std::move(draft));
  }
}

void EventStream::Impl::OnInterrupts() {
  const model::Ih& ih = device_.ih();
  if (ih.entries_read() != interrupts_) {
    const std::vector<model::Interrupt> recent = ih.recent();
    const std::vector<model::Interrupt>& all = recent.empty() ? ih.interrupts() : recent;
    const size_t fresh = std::min<size_t>(ih.entries_read() - interrupts_, all.size());
    interrupts_ = ih.entries_read();
    for (size_t i = all.size() - fresh; i < all.size(); i++) {
      if (all[i].meaning.effect == amd::IhEffect::kIgnored && !strict_) continue;
      Draft draft = Make(Event::Kind::kInterrupt, all[i].at, false);
      draft.event->what_text = "interrupt " + all[i].meaning.text;
      draft.token.key = Hash().Add(draft.event->what_text).Get();
      Emit(std::move(draft));
    }
  }
  // Thrown away unread at the end of a wait. One per signal of the compute queue is as it should
  // be; how many of them come together depends on time.
  const uint64_t discarded = ih.discarded() - discarded_;
  discarded_ = ih.discarded();
  const uint64_t usual = 2 * (compute_doorbells_ - drained_doorbells_);
  drained_doorbells_ = compute_doorbells_;
  if (discarded == 0 || (discarded <= usual && !strict_)) return;
  Draft draft = Make(Event::Kind::kInterrupt, ih.last_discard(), false);
  draft.event->what_text = "interrupts discarded unread";
  draft.event->value_text = fmt::format("{}", discarded);
  draft.token.solo = true;
  draft.token.key = Hash().Add("discarded").Get();
  draft.token.value = discarded - std::min(discarded, usual);
  Emit(std::move(draft));
}

void EventStream::Impl::End() {
  if (!end_seen_ || !connected_) return;  // cut off: no end to compare
  if (Unanswered()) unanswered_++;
  Draft draft = Make(Event::Kind::kEnd, {device_.now().call, device_.now().time_ns}, false);
  Event& e = *draft.event;
  e.what_text = "end";
  e.value_text = closed_first_.empty() ? std::string("open") : closed_first_ + " closed first";
  if (unanswered_ > 0) e.value_text += fmt::format(", {} unanswered", unanswered_);
  draft.token.key = Hash().Add("end").Get();
  draft.token.value = Hash().Add(e.value_text).Get();
  Push(std::move(draft));
}

}  // namespace tg::diff
