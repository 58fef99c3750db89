#include "proxy/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "proxy/capture/capture.h"
#include "proxy/intercept.h"
#include "proxy/session_handles.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;

// A payload that is held back must fit whole, behind what is being sent.
constexpr size_t kBuffer = wire::kHoldLimit + 1024 * 1024 + 64;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kMaxBusy = 2 * kMs;  // spinning, before the loop gets its turn
constexpr int kMaxParkUs = 1000;        // sleeping in a receive or send
constexpr size_t kBulk = 64 * 1024;
constexpr int kMaxCredit = 16;
constexpr int kReadsInARow = 16;
constexpr size_t kMaxAddressBytes = 8u << 20;

// Bulk data goes faster to a sleeping sender, which is woken as soon as there is any space, than by
// the event loop, which is told only when most of the buffer is free. Not while the other direction
// has something to pass on.
Channel::Wait SendWait(const Channel& channel, const Channel& other) {
  const bool bulk = channel.queued_bytes() >= kBulk;
  return bulk && other.queue_empty() && other.unframed().empty() ? Channel::Wait::kBriefly
                                                                 : Channel::Wait::kNo;
}

void AllowWaiting(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const timeval limit{0, kMaxParkUs};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace

Session::Session(uv_loop_t* loop, const SessionOptions& options, Peers peers,
                 trace::TraceWriter& writer, Counters& counters, LogFn log,
                 std::function<void()> over)
    : loop_(loop),
      options_(options),
      peers_(std::move(peers)),
      counters_(counters),
      log_(std::move(log)),
      over_(std::move(over)),
      tap_(writer, options.bodies),
      alerts_(log_, [this](std::string_view text) { Poison(text); }),
      sysmem_(std::make_shared<SysmemTable>()),
      requests_(kBuffer),
      replies_(kBuffer),
      request_framer_(options.revision) {
  if (!options_.rules && !options_.autopsy) return;
  intercept_ = std::make_unique<Intercept>(
      options_.rules,
      Policy::Link{.app_server = peers_.server_is_unix,
                   .r1_given = options_.revision == wire::Revision::kR1},
      options_.autopsy, log_);
}

Session::~Session() = default;

void Session::Start() {
  handles_ = new Handles;
  uv_poll_init(loop_, &handles_->client, peers_.client.get());
  uv_poll_init(loop_, &handles_->server, peers_.server.get());
  // libuv made them non-blocking; here every call says for itself whether it waits.
  AllowWaiting(peers_.client.get());
  AllowWaiting(peers_.server.get());
  uv_timer_init(loop_, &handles_->tick);
  uv_timer_init(loop_, &handles_->retry);
  uv_timer_init(loop_, &handles_->hold);
  uv_idle_init(loop_, &handles_->idle);
  handles_->client.data = handles_->server.data = handles_->tick.data = handles_->retry.data =
      handles_->hold.data = handles_->idle.data = this;
  last_request_ns_ = last_reply_ns_ = uv_hrtime();
  if (options_.capture) {
    options_.capture->OnConnect(peers_.server_is_unix ? sysmem_ : nullptr, last_request_ns_);
  }
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::CONNECT);
  event.set_connection(peers_.number);
  event.set_transport(peers_.server_is_unix ? "unix" : "tcp");
  event.set_client_pid(static_cast<uint32_t>(peers_.client_pid));
  event.set_server_pid(static_cast<uint32_t>(peers_.server_pid));
  if (peers_.client_pid > 0) event.set_client_name(ProcessName(peers_.client_pid));
  tap_.Event(event, last_request_ns_);
  if (options_.revision != wire::Revision::kUndecided) NoteRevision();
  PumpRequests();
  Settle();
}

// ---- events ----------------------------------------------------------------------------------

void Session::OnPoll(uv_poll_t* handle, int status, int events) {
  auto* self = static_cast<Session*>(handle->data);
  if (self->finishing_) return;
  const bool client = handle == &self->handles_->client;
  // On an error libuv stops watching; reading or writing tells which error it is.
  if (status < 0) {
    (client ? self->handles_->client_mask : self->handles_->server_mask) = 0;
    events = UV_READABLE | UV_WRITABLE;
  }
  const uint64_t last = std::max(self->last_request_ns_, self->last_reply_ns_);
  if (events & UV_WRITABLE) {
    if (client) {
      self->FlushToClient();
      self->ForwardReplies();
    } else {
      self->FlushToServer();
      self->ForwardRequests();
    }
  }
  if (events & UV_READABLE) {
    if (client)
      self->PumpRequests();
    else
      self->PumpReplies();
    if (uv_hrtime() - last < self->options_.spin_us * 1000ull) self->EarnSpin();
    self->AwaitMore();
  }
  self->Settle();
}

void Session::OnIdle(uv_idle_t* handle) {
  auto* self = static_cast<Session*>(handle->data);
  uv_idle_stop(handle);
  if (self->finishing_) return;
  self->AwaitMore();
  self->Settle();
}

// Stays at the sockets while traffic is dense: going to sleep in the event loop and waking from it
// costs tens of microseconds, as much as the round trip itself.
void Session::AwaitMore() {
  const uint64_t start = uv_hrtime();
  const uint64_t window = options_.spin_us * 1000ull;
  for (;;) {
    Arrival arrival = Arrival::kNone;
    if (window > 0 && spin_credit_ > 0) arrival = Spin(window, start + kMaxBusy);
    if (arrival == Arrival::kNone) {
      const uint64_t parked = uv_hrtime();
      arrival = Park();
      if (arrival == Arrival::kSome && uv_hrtime() - parked < window) EarnSpin();
    }
    if (arrival != Arrival::kSome) return;
    if (uv_hrtime() - start >= kMaxBusy) {
      uv_idle_start(&handles_->idle, OnIdle);  // go on after the loop's other work
      return;
    }
  }
}

// Traffic that spinning would have caught.
void Session::EarnSpin() {
  spin_credit_ = std::min(kMaxCredit, spin_credit_ + 2);
}

// Polls both sockets for `window` ns. Given up for a while when it does not pay.
Session::Arrival Session::Spin(uint64_t window, uint64_t until) {
  const uint64_t deadline = uv_hrtime() + window;
  for (uint32_t i = 0;; i++) {
    if (!NobodyIsSlow()) return Arrival::kOver;
    // A synchronous client sends nothing while it waits, so mostly look where something is due.
    const bool awaiting = !pairing_.empty();
    bool got = false;
    if (awaiting || i % 8 == 7) got |= MayReadServer() && PumpReplies();
    if (!awaiting || i % 8 == 3) got |= MayReadClient() && PumpRequests();
    if (client_eof_ || server_eof_) return Arrival::kOver;
    const uint64_t now = uv_hrtime();
    if (got) {
      if (spin_credit_ < kMaxCredit) spin_credit_++;
      return Arrival::kSome;
    }
    if (now >= deadline) {
      spin_credit_ -= 4;
      return Arrival::kNone;
    }
    if (now >= until) return Arrival::kSome;  // the loop's turn
    ::sched_yield();                          // whom this woke may be waiting for this very core
  }
}

// Sleeps in the receive itself where something is due, which wakes quicker than the event loop
// does, and takes one system call less. Gives up after a short silence.
Session::Arrival Session::Park() {
  if (!NobodyIsSlow() || request_framer_.raw() || reply_framer_.raw()) return Arrival::kOver;
  const bool got = pairing_.empty() ? MayReadClient() && PumpRequests(Channel::Wait::kBriefly)
                                    : MayReadServer() && PumpReplies(Channel::Wait::kBriefly);
  return got && !client_eof_ && !server_eof_ ? Arrival::kSome : Arrival::kOver;
}

bool Session::MayReadClient() const {
  return !client_eof_ && requests_.room() &&
         (pairing_.size() < wire::kMaxPending || reply_framer_.raw());
}

bool Session::MayReadServer() const {
  return !server_eof_ && replies_.room();
}

// ---- client to server ------------------------------------------------------------------------

bool Session::PumpRequests(Channel::Wait wait) {
  bool got = false;
  for (int i = 0; i < kReadsInARow && MayReadClient(); i++) {
    switch (requests_.Read(peers_.client.get(), request_framer_.raw(), wait)) {
      case Channel::ReadResult::kData:
        got = true;
        last_request_ns_ = uv_hrtime();
        silence_warned_ = false;
        replies_.CloseSent();  // the client goes on, so it has what was sent to it
        ForwardRequests();
        if (requests_.more_likely()) continue;
        return true;
      case Channel::ReadResult::kEof:
      case Channel::ReadResult::kError:
        client_eof_ = true;
        NoteClosed("client");
        ForwardRequests();
        return got;
      case Channel::ReadResult::kNothing:
      case Channel::ReadResult::kFull:
        return got;
    }
  }
  return got;
}

void Session::ForwardRequests() {
  for (;;) {
    if (server_closed_) {
      // Nobody will read it; the client gets its error as soon as the replies are delivered.
      undelivered_to_server_ += requests_.DropQueue() + requests_.unframed().size();
      requests_.ClaimDescriptors(requests_.unframed().size(), false);
      requests_.Drop(requests_.unframed().size());
      return;
    }
    if (intercept_ && BlocksRequests()) break;
    if (requests_.queue_full() && !FlushToServer()) return;
    if (server_closed_) continue;
    if (!reply_framer_.raw() && !client_eof_ && pairing_.size() >= wire::kMaxPending) break;
    const wire::RequestEvent event = request_framer_.Next(
        request_framer_.raw() ? requests_.UntilDescriptor() : requests_.unframed());
    if (event.kind == wire::RequestEvent::Kind::kNeedMore) break;
    HandleRequest(event, last_request_ns_);
  }
  FlushToServer();
  if (intercept_ && !intercept_->made.empty()) ForwardReplies();
}

void Session::HandleRequest(const wire::RequestEvent& event, uint64_t now) {
  const auto descriptors = requests_.ClaimDescriptors(event.bytes.size(), false);
  const auto count = static_cast<uint32_t>(descriptors.size());
  if (requests_.TakeControlTruncated() && !std::exchange(truncated_control_warned_, true))
    log_(LogLevel::kError,
         "the kernel dropped descriptors that the client sent (MSG_CTRUNC): raise "
         "the limit of open files (ulimit -n)");
  switch (event.kind) {
    case wire::RequestEvent::Kind::kNeedMore:
      return;
    case wire::RequestEvent::Kind::kRequest: {
      if (!revision_noted_) NoteRevision();
      uint64_t call = 0;
      if (!intercept_)
        call = tap_.Request(event, now);
      else if (!InterceptRequest(event, now, call))
        return;  // not passed on
      if (options_.capture) options_.capture->OnRequest(event, call, now);
      counters_.by_command[event.header.command]++;
      alerts_.Request(event.header);
      if (!reply_framer_.raw()) pairing_.Sent(event.header, call, request_framer_.revision());
      if (options_.machine_durability) {
        const wire::CommandInfo* info = wire::FindCommand(event.header.command);
        if (info && info->side_effects) sync_needed_ = true;
      }
      break;
    }
    case wire::RequestEvent::Kind::kPayloadChunk:
      if (intercept_ && InterceptRest(event, count, now)) return;
      tap_.Request(event, now);
      break;
    case wire::RequestEvent::Kind::kRaw:
      if (intercept_ && InterceptRest(event, count, now)) return;
      if (event.raw_starts) {
        alerts_.UnknownCommand(event.header.command);
        pb::SessionEvent raw;
        raw.set_kind(pb::SessionEvent::RAW);
        raw.set_connection(peers_.number);
        raw.set_text(std::string(wire::RawReasonText(event.raw_reason)));
        tap_.Event(raw, now);
      }
      counters_.raw_bytes += event.bytes.size();
      tap_.Raw(false, event.bytes, count,
               event.raw_starts ? wire::RawReasonText(event.raw_reason) : std::string_view(), now);
      if (options_.machine_durability) sync_needed_ = true;
      requests_.Queue(event.bytes.size());
      return;
  }
  if (count > 0)
    log_(LogLevel::kWarn, fmt::format("client sent {} descriptor(s) with {}; passed on", count,
                                      DescribeRequest(event.header)));
  requests_.Queue(event.bytes.size());
}

bool Session::FlushToServer() {
  if (requests_.queue_empty()) return true;
  if (server_closed_) {
    undelivered_to_server_ += requests_.DropQueue();
    return true;
  }
  if (retrying_) return false;
  if (intercept_ && intercept_->holding) return false;
  if (sync_needed_) {
    sync_needed_ = false;
    if (const auto synced = tap_.writer().Sync(); !synced && !std::exchange(sync_failed_, true))
      log_(LogLevel::kError,
           "the trace cannot be forced to disk (traffic goes on): " + synced.error().message);
  }
  const uint64_t before = requests_.sent();
  const Channel::SendResult result =
      requests_.Send(peers_.server.get(), SendWait(requests_, replies_));
  counters_.to_server += requests_.sent() - before;
  if (result != Channel::SendResult::kClosed) return TookAll(result);
  NoteClosed("server");
  server_closed_ = true;
  undelivered_to_server_ += requests_.DropQueue();
  return true;
}

// ---- server to client ------------------------------------------------------------------------

bool Session::PumpReplies(Channel::Wait wait) {
  bool got = false;
  for (int i = 0; i < kReadsInARow && MayReadServer(); i++) {
    const bool raw = reply_framer_.raw() || request_framer_.raw();
    switch (replies_.Read(peers_.server.get(), raw, wait)) {
      case Channel::ReadResult::kData:
        got = true;
        last_reply_ns_ = uv_hrtime();
        ForwardReplies();
        if (replies_.more_likely()) continue;
        return true;
      case Channel::ReadResult::kEof:
      case Channel::ReadResult::kError:
        server_eof_ = true;
        NoteClosed("server");
        if (closed_first_ == "server") end_text_ = alerts_.ServerClosed();
        ForwardReplies();
        return got;
      case Channel::ReadResult::kNothing:
      case Channel::ReadResult::kFull:
        return got;
    }
  }
  return got;
}

void Session::ForwardReplies() {
  const bool was_stalled = pairing_.size() >= wire::kMaxPending;
  for (;;) {
    if (replies_.queue_full() && !FlushToClient()) return;
    if (intercept_ && !AnswerMade()) break;
    // What was asked before the unknown command is still answered in frames.
    if (request_framer_.raw() && pairing_.empty() && !reply_framer_.raw())
      reply_framer_.GoRaw(wire::RawReason::kUnknownCommand);
    const wire::ReplyEvent event =
        reply_framer_.Next(reply_framer_.raw() ? replies_.UntilDescriptor() : replies_.unframed(),
                           pairing_, request_framer_.revision());
    if (event.kind == wire::ReplyEvent::Kind::kNeedMore) break;
    HandleReply(event, last_reply_ns_);
  }
  FlushToClient();
  if (intercept_) AutopsyGoesOn();
  if (was_stalled) ForwardRequests();
}

void Session::HandleReply(const wire::ReplyEvent& event, uint64_t now) {
  const bool header = event.kind == wire::ReplyEvent::Kind::kReply;
  const wire::CommandInfo* info =
      header ? wire::FindCommand(event.request.header.command) : nullptr;
  const bool expects = info && info->descriptor && event.reply.status == 0;
  const auto descriptors = replies_.ClaimDescriptors(event.bytes.size(), expects);
  const auto count = static_cast<uint32_t>(descriptors.size());
  counters_.descriptors += count;
  const bool truncated = replies_.TakeControlTruncated();
  if (truncated && !std::exchange(truncated_control_warned_, true))
    log_(LogLevel::kError,
         "the kernel dropped descriptors that the server sent (MSG_CTRUNC): raise "
         "the limit of open files (ulimit -n)");
  if (event.kind == wire::ReplyEvent::Kind::kRaw) {
    if (event.raw_starts && event.raw_reason == wire::RawReason::kUnsolicitedReply) {
      alerts_.Unsolicited(event.bytes.size());
      pb::SessionEvent raw;
      raw.set_kind(pb::SessionEvent::RAW);
      raw.set_connection(peers_.number);
      raw.set_text(fmt::format("{} {}", event.bytes.size(), wire::RawReasonText(event.raw_reason)));
      tap_.Event(raw, now);
    }
    counters_.raw_bytes += event.bytes.size();
    tap_.Raw(true, event.bytes, count,
             event.raw_starts ? wire::RawReasonText(event.raw_reason) : std::string_view(), now);
    replies_.Queue(event.bytes.size());
    return;
  }
  if (intercept_ && InterceptReply(event, count, truncated, now)) return;
  tap_.Reply(event, count, truncated, now);
  if (options_.capture) options_.capture->OnReply(event, now);
  alerts_.Reply(event, count);
  if (header) {
    if (event.reply.status != 0) counters_.errors++;
    if (expects && count > 0) RecordRegion(event, descriptors, now);
  }
  if (event.request.header.command == static_cast<uint8_t>(wire::Command::kMapSysmem) &&
      event.reply.status == 0)
    CollectAddresses(event, now);
  replies_.Queue(event.bytes.size());
}

void Session::RecordRegion(const wire::ReplyEvent& event, std::span<const int> descriptors,
                           uint64_t now) {
  const SysmemRegion region =
      sysmem_->Add(descriptors.front(), static_cast<uint32_t>(event.reply.resp1),
                   event.request.header.arg0, event.reply.resp0);
  pb::Packet packet;
  pb::SysmemRegion& record = *packet.mutable_region();
  record.set_calls_back(tap_.writer().calls() - event.request.call);
  record.set_index(region.index);
  record.set_asked(region.asked);
  record.set_granted(region.granted);
  record.set_mapped(region.mapped);
  record.set_problem(region.problem);
  for (const auto& [address, length] : region.table) {
    record.add_address(address);
    record.add_length(length);
  }
  if (!region.problem.empty())
    log_(LogLevel::kWarn,
         fmt::format("shared memory region {}: {}", region.index, Printable(region.problem)));
  tap_.writer().Append(packet, now);
  if (options_.capture) options_.capture->OnRegion(region, event.request.call, now);
}

// A MAP_SYSMEM reply's body: one u64 address per 4 KiB page. Kept as ranges, whatever --bodies
// says.
void Session::CollectAddresses(const wire::ReplyEvent& event, uint64_t now) {
  if (event.kind == wire::ReplyEvent::Kind::kReply) addresses_.clear();
  if (event.body_size > kMaxAddressBytes) return;
  addresses_.insert(addresses_.end(), event.body.begin(), event.body.end());
  if (!event.complete()) return;
  pb::Packet packet;
  pb::SysmemRegion& record = *packet.mutable_region();
  record.set_calls_back(tap_.writer().calls() - event.request.call);
  record.set_index(static_cast<uint32_t>(event.reply.resp1));
  record.set_asked(event.request.header.arg0);
  record.set_granted(addresses_.size() / 8 * 4096);
  uint64_t start = 0, length = 0;
  const auto flush = [&] {
    if (length == 0 || record.address_size() >= 40'000) return;
    record.add_address(start);
    record.add_length(length);
  };
  for (size_t at = 0; at + 8 <= addresses_.size(); at += 8) {
    const auto page = LoadLe<uint64_t>(&addresses_[at]);
    if (length > 0 && page == start + length) {
      length += 4096;
      continue;
    }
    flush();
    start = page;
    length = 4096;
  }
  flush();
  addresses_ = {};
  tap_.writer().Append(packet, now);
}

bool Session::FlushToClient() {
  if (replies_.queue_empty()) return true;
  if (client_closed_) {
    undelivered_to_client_ += replies_.DropQueue();
    return true;
  }
  if (retrying_) return false;
  const uint64_t before = replies_.sent();
  const Channel::SendResult result =
      replies_.Send(peers_.client.get(), SendWait(replies_, requests_));
  counters_.to_client += replies_.sent() - before;
  if (result != Channel::SendResult::kClosed) return TookAll(result);
  NoteClosed("client");
  client_closed_ = true;
  undelivered_to_client_ += replies_.DropQueue();
  return true;
}

// What a send to a peer that still reads came to; false: what is queued must wait.
bool Session::TookAll(Channel::SendResult result) {
  if (result == Channel::SendResult::kRetry) {
    retrying_ = true;
    uv_timer_start(&handles_->retry, OnRetry, 1, 0);
  }
  return result == Channel::SendResult::kDone;
}

void Session::OnRetry(uv_timer_t* handle) {
  auto* self = static_cast<Session*>(handle->data);
  self->retrying_ = false;
  if (self->finishing_) return;
  if (self->FlushToServer()) self->ForwardRequests();
  if (self->FlushToClient()) self->ForwardReplies();
  self->Settle();
}

}  // namespace tg::proxy
