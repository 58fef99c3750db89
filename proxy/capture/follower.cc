#include "proxy/capture/follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoder/model/queue_state.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;
using wire::Command;

// What the model keeps of VRAM and shared memory: page tables and rings are far smaller. A full
// capture asks it for all that was stored, not to store it again.
constexpr uint64_t kMaxShadow = 12u << 20, kMaxFullShadow = 128u << 20;
// Bodies put together from pieces: the address list of a MAP_SYSMEM of 2 GiB.
constexpr uint64_t kMaxBody = 4u << 20;

std::string Seconds(uint64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

}  // namespace

Follower::Follower(FollowerHooks hooks, uint32_t connection, bool full, StallTimes times)
    : hooks_(std::move(hooks)),
      device_({.dev = std::nullopt,
               .max_shadow_bytes = full ? kMaxFullShadow : kMaxShadow,
               .forget_oldest = true}),
      queues_(device_),
      store_(
          [this](uint32_t region, uint64_t offset, std::span<uint8_t> out) {
            const model::Region* found = device_.sysmem().Find(region);
            return found && found->shadow.Read(offset, out);
          },
          [this](const StoredRun& run) { Emit(run); }),
      collector_(
          queues_.queues(),
          hooks_.copy ? hooks_.copy
                      : [](uint32_t, uint64_t, std::span<uint8_t>) -> size_t { return 0; },
          store_, full),
      watch_(times) {
  device_.AddObserver(this);
  pb::Packet packet;
  packet.mutable_event()->set_kind(pb::SessionEvent::CONNECT);
  packet.mutable_event()->set_connection(connection);
  packet.mutable_event()->set_transport(hooks_.copy ? "unix" : "tcp");
  FeedPacket(packet, 0);
}

Follower::~Follower() = default;

void Follower::OnDoorbell(const model::DoorbellWrite& doorbell) {
  if (rung_.size() < 64) rung_.push_back(doorbell.offset);
}

void Follower::FeedPacket(const pb::Packet& packet, uint64_t now) {
  trace::Record record;
  record.kind = trace::Record::Kind::kPacket;
  record.call = last_call_;
  record.time_ns = now;
  record.packet = &packet;
  device_.Feed(record);
}

void Follower::Emit(const StoredRun& run) {
  pb::Packet packet;
  pb::SysmemData& data = *packet.mutable_sysmem();
  data.set_index(run.region);
  data.set_offset(run.offset);
  data.set_why(static_cast<pb::SysmemData::Why>(run.why));
  if (run.data.empty()) {
    data.set_zeros(true);
    data.set_size(run.size);
  } else {
    data.set_data(run.data.data(), run.data.size());
  }
  if (run.torn) data.set_torn(true);
  data.set_after_call(last_call_);
  hooks_.append(packet);
  bytes_stored_ += run.size;
  FeedPacket(packet, now_);
}

void Follower::FeedRequest(const Handed& handed) {
  trace::Record record;
  record.kind = trace::Record::Kind::kRequest;
  record.call = handed.call;
  record.time_ns = handed.now;
  record.request.header = handed.header;
  record.request.payload = {.size = handed.size, .data = handed.data, .xxh3 = std::nullopt};
  last_call_ = handed.call;
  request_ns_ = handed.now;
  device_.Feed(record);
}

void Follower::FeedReply(const Handed& handed) {
  trace::Record record;
  record.kind = trace::Record::Kind::kReply;
  record.time_ns = handed.now;
  if (handed.kind == Handed::Kind::kReply) {
    body_.clear();
    body_size_ = 0;
    record.call = handed.call;
    record.reply.reply = handed.reply;
    record.reply.body = {.size = handed.size, .data = handed.data, .xxh3 = std::nullopt};
    record.reply.latency_ns = handed.now > request_ns_ ? handed.now - request_ns_ : 0;
    if (handed.data.size() < handed.size && handed.size <= kMaxBody) {
      body_call_ = handed.call;
      body_size_ = handed.size;
      body_now_ = handed.now;
      body_reply_ = handed.reply;
      body_.assign(handed.data.begin(), handed.data.end());
      return;
    }
  } else {
    if (handed.call != body_call_ || body_size_ == 0 || handed.offset != body_.size()) return;
    const size_t take = std::min<uint64_t>(handed.data.size(), body_size_ - body_.size());
    body_.insert(body_.end(), handed.data.begin(), handed.data.begin() + take);
    if (body_.size() < body_size_) return;
    record.call = body_call_;
    record.time_ns = body_now_;
    record.reply.reply = body_reply_;
    record.reply.body = {.size = body_size_, .data = body_, .xxh3 = std::nullopt};
    record.reply.latency_ns = body_now_ > request_ns_ ? body_now_ - request_ns_ : 0;
    body_size_ = 0;
  }
  device_.Feed(record);
}

void Follower::FeedRegion(const Handed& handed) {
  pb::Packet packet;
  pb::SysmemRegion& region = *packet.mutable_region();
  region.set_index(handed.header.bar);
  region.set_asked(handed.header.arg0);
  region.set_granted(handed.header.arg1);
  region.set_mapped(handed.reply.resp0);
  for (size_t at = 0; at + 16 <= handed.data.size(); at += 16) {
    region.add_address(LoadLe<uint64_t>(&handed.data[at]));
    region.add_length(LoadLe<uint64_t>(&handed.data[at + 8]));
  }
  FeedPacket(packet, handed.now);
  if (hooks_.copy) collector_.AddRegion(handed.header.bar, handed.reply.resp0);
}

void Follower::Handle(const Handed& record) {
  now_ = record.now;
  rung_.clear();
  switch (record.kind) {
    case Handed::Kind::kRequest:
      FeedRequest(record);
      break;
    case Handed::Kind::kReply:
    case Handed::Kind::kReplyChunk:
      FeedReply(record);
      break;
    case Handed::Kind::kRegion:
      FeedRegion(record);
      return;
    case Handed::Kind::kSnapshot:
      Snapshot(StoreWhy::kSignal);
      return;
    default:
      return;
  }
  doorbells_ += rung_.size();
  Watch(record);
  if (!hooks_.copy) return;
  for (const uint64_t offset : rung_) {
    if (const auto queue = queues().FindByDoorbell(offset)) collector_.OnDoorbell(*queue);
  }
}

// What the message tells the stall watch.
void Follower::Watch(const Handed& record) {
  const model::Ih& ih = device_.ih();
  const bool round = ih.handler_rounds() != rounds_seen_, drain = ih.drains() != drains_seen_;
  rounds_seen_ = ih.handler_rounds();
  drains_seen_ = ih.drains();
  if (!rung_.empty()) return watch_.OnDoorbell(record.now);
  if (drain) return watch_.OnDrain(record.now);
  if (round) return watch_.OnPollRound(record.now);
  bool polling = record.kind != Handed::Kind::kRequest;
  const auto command = static_cast<Command>(record.header.command);
  if (command == Command::kSysmemRead) polling = true;
  if (command == Command::kMmioRead || command == Command::kMmioWrite) {
    // Registers of the interrupt ring, and the one the handler looks at in each round.
    const model::RegisterState* reg = device_.registers().Find(record.header.arg0);
    const std::string_view name =
        reg && record.header.bar == reg->bar ? reg->name() : std::string_view();
    if (name.find("IH_RB_") != std::string_view::npos ||
        name.find("DOORBELL_INT") != std::string_view::npos) {
      polling = true;
    }
    const bool queue_register = name.find("CP_HQD_") != std::string_view::npos ||
                                name.find("CP_MEC") != std::string_view::npos ||
                                name.find("GRBM_GFX_CNTL") != std::string_view::npos;
    if (queue_register && watch_.stalled()) return watch_.OnQueueReset(record.now);
  }
  watch_.OnMessage(record.now, polling);
}

void Follower::Snapshot(StoreWhy why) {
  if (hooks_.copy) collector_.Snapshot(why);
}

bool Follower::Outstanding() const {
  for (const model::Queue& queue : queues().queues()) {
    // A queue that was switched off has nothing to do any more.
    if (!queue.known_format || (queue.epochs > 0 && !queue.setup.enabled)) continue;
    const auto state =
        StateOf(queues(), queue.index, {.max_items = 8, .packets_before = 0, .packets_after = 0});
    if (state.outstanding()) return true;
  }
  return false;
}

std::string Follower::StateLine() const {
  std::string busy, idle;
  for (const model::Queue& queue : queues().queues()) {
    const auto state = StateOf(queues(), queue.index);
    if (state.kind == model::QueueState::Kind::kUnused) continue;
    std::string text = state.headline;
    if (state.kind == model::QueueState::Kind::kBusy && state.missing) {
      text += fmt::format("; fence missing: [{:#x}] = {}", state.missing->fence.va,
                          state.missing->fence.value);
    }
    std::string& line = state.kind == model::QueueState::Kind::kIdle ? idle : busy;
    if (!line.empty()) line += " | ";
    line += text;
  }
  if (busy.empty()) return idle.empty() ? "no queue known" : idle;
  return idle.empty() ? busy : busy + " | " + idle;
}

std::string Follower::LastDoorbell(uint64_t now) const {
  const model::Queue* last = nullptr;
  for (const model::Queue& queue : queues().queues()) {
    if (queue.doorbells > 0 && (!last || queue.last_doorbell_call > last->last_doorbell_call)) {
      last = &queue;
    }
  }
  if (!last) return "no doorbell yet";
  const uint64_t ago = now > last->last_doorbell_ns ? now - last->last_doorbell_ns : 0;
  return fmt::format("last doorbell {} {:#x} {} ago (call {})", last->name,
                     last->last_doorbell_value, Seconds(ago), last->last_doorbell_call);
}

void Follower::Event(int kind, const std::string& text) {
  pb::Packet packet;
  packet.mutable_event()->set_kind(static_cast<pb::SessionEvent::Kind>(kind));
  packet.mutable_event()->set_text(text);
  hooks_.append(packet);
}

void Follower::Act(const StallWatch::Action& action, uint64_t now) {
  using What = StallWatch::Action::What;
  switch (action.what) {
    case What::kNothing:
      return;
    case What::kLook:
      Snapshot(StoreWhy::kStall);
      watch_.OnLook(now, Outstanding());
      return;
    case What::kSnapshot:
      Snapshot(StoreWhy::kStall);
      return;
    case What::kBegin: {
      ++stalls_;
      Snapshot(StoreWhy::kStall);
      const uint64_t waited = now > action.since_ns ? now - action.since_ns : 0;
      const std::string first = fmt::format("GPU stall: {} since {}; {}",
                                            action.kind == StallWatch::Kind::kPollRun
                                                ? "the client polls the interrupt ring"
                                                : "work is outstanding and nothing moves",
                                            Seconds(waited), LastDoorbell(now));
      const std::string second = StateLine();
      hooks_.say(true, first);
      hooks_.say(true, second);
      Event(pb::SessionEvent::STALL, first + '\n' + second);
      return;
    }
    case What::kOver: {
      // A long kernel that has ended and a client that gives up look alike on the wire: the queues
      // tell them apart.
      Snapshot(StoreWhy::kStall);
      const std::string text = fmt::format("GPU stall over after {}: {}; {}",
                                           Seconds(action.lasted_ns), action.why, StateLine());
      hooks_.say(false, text);
      Event(pb::SessionEvent::STALL_OVER, text);
      return;
    }
  }
}

void Follower::Tick(uint64_t now) {
  now_ = std::max(now_, now);
  // A look may ask for a beginning at once.
  for (int i = 0; i < 3; ++i) {
    const auto action = watch_.Tick(now);
    if (action.what == StallWatch::Action::What::kNothing) return;
    Act(action, now);
  }
}

void Follower::End(uint64_t now) {
  now_ = std::max(now_, now);
  Snapshot(StoreWhy::kEnd);
  watch_.OnDisconnect(now);
  Tick(now);
}

}  // namespace tg::proxy
