#include "replay/script/script.h"

#include <algorithm>
#include <utility>

#include "schemas/trace/trace.pb.h"

namespace tg::replay {
namespace {

namespace pb = tinygpu::trace;

constexpr uint8_t kReply = 1;
constexpr uint8_t kPayloadChunks = 2;
constexpr uint8_t kBodyChunks = 4;
// Calls of a run that may still get another answer; a synchronous client leaves one.
constexpr uint64_t kMaxTail = 4096;

Bytes MakeBytes(const trace::BodyView& view) {
  Bytes bytes;
  bytes.size = view.size;
  bytes.data.assign(view.data.begin(), view.data.end());
  bytes.xxh3 = view.xxh3;
  bytes.all_zero = view.all_zero;
  return bytes;
}

uint64_t Held(const Step& step) {
  return step.call.payload.data.size() + step.call.body.data.size() + step.memory.data.size() +
         step.region.ranges.size() * sizeof(DmaRange) + step.text.size() + sizeof(Step);
}

std::string_view CauseText(pb::Loss::Cause cause) {
  switch (cause) {
    case pb::Loss::DISK_FULL:
      return "disk full";
    case pb::Loss::IO_ERROR:
      return "I/O error";
    case pb::Loss::TOO_SLOW:
      return "disk too slow";
    case pb::Loss::TOO_LARGE:
      return "too large";
    case pb::Loss::LAG:
      return "shared memory not copied in time";
    case pb::Loss::KEEP_LIMIT:
      return "dropped to keep the file small";
    default:
      return "cause not given";
  }
}

bool SameWrite(const Call& a, const Call& b) {
  return a.request == b.request && a.payload.data == b.payload.data;
}

// Calls of the run before its first one that did not get the pattern's answer.
uint64_t AnsweredLength(const Run& run) {
  std::vector<uint64_t> replies;  // places in the pattern that expect one
  for (uint64_t i = 0; i < run.pattern.size(); i++)
    if (run.pattern[i].expects_reply) replies.push_back(i);
  if (replies.empty()) return run.issued;
  const uint64_t rounds = run.answered / replies.size();
  if (rounds > run.issued / run.pattern.size()) return run.issued;
  return std::min(run.issued, rounds * run.pattern.size() + replies[run.answered % replies.size()]);
}

}  // namespace

uint64_t RequestKey(const wire::RequestHeader& r) {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  for (const uint64_t word :
       {uint64_t{r.command} << 32 | r.dev, uint64_t{r.bar}, r.arg0, r.arg1, r.arg2}) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}

Result<std::unique_ptr<Script>> Script::FromFile(const std::string& path) {
  auto reader = trace::TraceReader::Open(path);
  if (!reader) return tl::unexpected(reader.error());
  return std::make_unique<Script>(std::move(*reader));
}

Script::Script(std::unique_ptr<trace::TraceReader> reader) : reader_(std::move(reader)) {}
Script::~Script() = default;

Step* Script::At(size_t i) {
  if (i >= kWindowSteps) return nullptr;
  while (!ended_ && (steps_.size() <= i || !Settled(i))) {
    if (steps_.size() > i && (steps_.size() - i > kWindowSteps || bytes_ > kWindowBytes)) break;
    if (!Fill()) ended_ = true;
  }
  return i < steps_.size() ? &steps_[i] : nullptr;
}

Step Script::Take() {
  Step step = std::move(steps_.front());
  if (step.waiting != 0) open_.erase(step.number);
  bytes_ -= std::min(bytes_, Held(step));
  steps_.pop_front();
  popped_++;
  return step;
}

bool Script::Settled(size_t i) const {
  return steps_[i].waiting == 0 || popped_ + i < closed_before_;
}

bool Script::Fill() {
  trace::Record record;
  const bool more = reader_->Next(record);
  const auto& skipped = reader_->skipped();
  for (; skipped_seen_ < skipped.size(); skipped_seen_++)
    Gap(std::to_string(skipped[skipped_seen_].size) + " bytes at offset " +
            std::to_string(skipped[skipped_seen_].offset) + " of the file are unreadable (" +
            skipped[skipped_seen_].reason + ")",
        reader_->calls(), true);
  if (!more) return false;
  switch (record.kind) {
    case trace::Record::Kind::kRequest:
      OnRequest(record);
      break;
    case trace::Record::Kind::kReply:
      OnReply(record);
      break;
    case trace::Record::Kind::kRepeat:
      OnRepeat(record);
      break;
    case trace::Record::Kind::kPacket:
      OnPacket(record);
      break;
  }
  return true;
}

Step& Script::Push(Step::Kind kind, uint64_t number) {
  Step& step = steps_.emplace_back();
  step.kind = kind;
  step.number = number;
  return step;
}

void Script::Gap(std::string text, uint64_t number, bool breaks) {
  Step& step = Push(Step::Kind::kGap, number);
  step.text = std::move(text);
  step.breaks = breaks;
  bytes_ += Held(step);
}

Step* Script::Open(uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return nullptr;
  return &steps_[static_cast<size_t>(found->second - popped_)];
}

void Script::Got(Step& step, uint8_t what) {
  step.waiting &= static_cast<uint8_t>(~what);
  if (step.waiting == 0) open_.erase(step.number);
}

// Nothing more will come for any call so far.
void Script::CloseAll() {
  for (const auto& [number, absolute] : open_) {
    Step& step = steps_[static_cast<size_t>(absolute - popped_)];
    step.waiting = 0;
  }
  open_.clear();
  closed_before_ = popped_ + steps_.size();
}

Call Script::MakeCall(const trace::RequestView& request, uint64_t number, uint64_t time_ns) {
  Call call;
  call.number = number;
  call.time_ns = time_ns;
  call.request = request.header;
  call.payload = MakeBytes(request.payload);
  call.truncated = request.truncated;
  if (request.truncated) call.payload.cut_at = request.received;
  call.refused = request.refused;
  call.injected = request.injected;
  const wire::CommandInfo* info = wire::FindCommand(request.header.command);
  call.expects_reply = info && info->reply && !call.truncated;
  if (info && info->payload && !info->reply && call.payload.known() && call.payload.size <= 8) {
    call.rewrite = SameWrite(call, last_write_);
    if (!call.rewrite) last_write_ = call;
  } else if (info && info->side_effects) {
    last_write_ = Call();
  }
  return call;
}

void Script::SetReply(Call& call, const trace::ReplyView& reply) {
  call.answered = true;
  call.reply = reply.reply;
  call.body = MakeBytes(reply.body);
  call.descriptors = reply.descriptors;
  call.latency_ns = reply.latency_ns;
  if (!reply.injected.empty()) call.injected = reply.injected;
}

void Script::OnRequest(const trace::Record& record) {
  Call call = MakeCall(record.request, record.call, record.time_ns);
  Step& step = Push(Step::Kind::kCall, record.call);
  step.call = std::move(call);
  if (step.call.expects_reply) step.waiting |= kReply;
  if (record.request.payload.streamed) step.waiting |= kPayloadChunks;
  if (step.waiting != 0) open_[record.call] = popped_ + steps_.size() - 1;
  bytes_ += Held(step);
}

void Script::OnReply(const trace::Record& record) {
  Step* step = Open(record.call);
  if (!step || !(step->waiting & kReply)) return;
  bytes_ -= std::min(bytes_, Held(*step));
  SetReply(step->call, record.reply);
  bytes_ += Held(*step);
  if (record.reply.body.streamed) step->waiting |= kBodyChunks;
  Got(*step, kReply);
}

void Script::OnRepeat(const trace::Record& record) {
  auto run = std::make_shared<Run>();
  run->first = record.call;
  run->issued = record.issued;
  run->answered = record.answered;
  run->last_time_ns = record.last_time_ns;
  for (const trace::RepeatedCall& repeated : record.pattern) {
    Call call = MakeCall(repeated.request, record.call + run->pattern.size(), record.time_ns);
    if (repeated.reply) SetReply(call, *repeated.reply);
    run->pattern.push_back(std::move(call));
  }
  if (run->pattern.empty() || run->issued == 0) return;
  // The answer that ended the run is another than the pattern's and comes in a Reply of its own:
  // its call becomes a step that can take it.
  const uint64_t answered = AnsweredLength(*run);
  const uint64_t tail = std::min<uint64_t>(run->issued - answered, kMaxTail);
  std::vector<Call> last;
  for (uint64_t i = run->issued - tail; i < run->issued; i++) {
    Call call = run->pattern[i % run->pattern.size()];
    call.number = run->first + i;
    call.time_ns = run->last_time_ns;
    call.answered = false;
    call.reply = {};
    call.body = {};
    last.push_back(std::move(call));
  }
  run->issued -= tail;
  if (run->issued > 0) {
    Step& step = Push(Step::Kind::kRun, record.call);
    step.run = std::move(run);
    bytes_ += Held(step);
  }
  for (Call& call : last) {
    Step& step = Push(Step::Kind::kCall, call.number);
    step.call = std::move(call);
    if (step.call.expects_reply) {
      step.waiting |= kReply;
      open_[step.number] = popped_ + steps_.size() - 1;
    }
    bytes_ += Held(step);
  }
}

void Script::OnChunk(const pb::BodyChunk& chunk, uint64_t newest) {
  if (chunk.calls_back() > newest) return;
  Step* step = Open(newest - chunk.calls_back());
  if (!step) return;
  Bytes& bytes = chunk.of_reply() ? step->call.body : step->call.payload;
  const std::string& data = chunk.data();
  if (chunk.offset() == bytes.data.size() && data.size() <= bytes.size - bytes.data.size()) {
    bytes.data.insert(bytes.data.end(), data.begin(), data.end());
    bytes_ += data.size();
  }
  if (!chunk.last()) return;
  if (chunk.has_xxh3()) bytes.xxh3 = chunk.xxh3();
  bytes.all_zero = chunk.all_zero() && chunk.received() == bytes.size;
  if (chunk.received() < bytes.size) {
    bytes.cut_at = chunk.received();
    bytes.cut_zero = chunk.all_zero();
  }
  Got(*step, chunk.of_reply() ? kBodyChunks : kPayloadChunks);
}

void Script::OnEvent(const pb::SessionEvent& event, uint64_t newest) {
  if (event.revision() == 1) revision_ = wire::Revision::kR1;
  if (event.revision() == 2) revision_ = wire::Revision::kR2;
  if (event.kind() == pb::SessionEvent::CONNECT) {
    CloseAll();
    Step& step = Push(Step::Kind::kConnect, newest);
    step.connection = event.connection();
    step.text = event.transport();
    bytes_ += Held(step);
    last_write_ = Call();
  } else if (event.kind() == pb::SessionEvent::DISCONNECT) {
    CloseAll();
    Step& step = Push(Step::Kind::kDisconnect, newest);
    step.connection = event.connection();
    step.text = event.closed_first();
    bytes_ += Held(step);
  }
}

void Script::OnPacket(const trace::Record& record) {
  const pb::Packet& packet = *record.packet;
  if (packet.has_chunk()) {
    OnChunk(packet.chunk(), record.call);
  } else if (packet.has_region()) {
    const pb::SysmemRegion& region = packet.region();
    Step& step =
        Push(Step::Kind::kRegion, record.call - std::min(record.call, region.calls_back()));
    step.region.index = region.index();
    step.region.asked = region.asked();
    step.region.granted = region.granted();
    const int count = std::min(region.address_size(), region.length_size());
    for (int i = 0; i < count; i++)
      step.region.ranges.push_back({region.address(i), region.length(i)});
    bytes_ += Held(step);
  } else if (packet.has_sysmem()) {
    const pb::SysmemData& data = packet.sysmem();
    Step& step = Push(Step::Kind::kMemory, record.call);
    step.memory.region = data.index();
    step.memory.offset = data.offset();
    if (data.zeros())
      step.memory.zeros = data.size();
    else
      step.memory.data.assign(data.data().begin(), data.data().end());
    step.memory.why =
        pb::SysmemData::Why_IsValid(data.why()) ? static_cast<Why>(data.why()) : Why::kUnknown;
    step.memory.torn = data.torn();
    bytes_ += Held(step);
  } else if (packet.has_event()) {
    OnEvent(packet.event(), record.call);
  } else if (packet.has_loss()) {
    const pb::Loss& loss = packet.loss();
    const bool memory_only = loss.cause() == pb::Loss::LAG;
    Gap(std::to_string(memory_only ? loss.packets() : loss.calls()) +
            (memory_only ? " copies of shared memory" : " calls") + " were not recorded (" +
            std::string(CauseText(loss.cause())) + ")",
        record.call, !memory_only);
  } else if (packet.has_raw()) {
    Step& step = Push(Step::Kind::kRaw, record.call);
    step.text = packet.raw().reason();
    bytes_ += Held(step);
  } else if (packet.has_compressed()) {
    Gap("packets are compressed by a method this version does not know", record.call, true);
  }
}

}  // namespace tg::replay
