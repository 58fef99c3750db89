#include "proxy/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
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
constexpr uint64_t kTickMs = 100;
constexpr uint64_t kSilence = 1000 * kMs;     // of a client, in the middle of a header
constexpr uint64_t kShortReply = 2000 * kMs;  // of a server, in the middle of a body
constexpr uint64_t kLinger = 2000 * kMs;      // for the other side to close, when one is gone
constexpr uint64_t kTcpLinger = 10'000 * kMs;
constexpr uint64_t kNothingDue = 300 * kMs;  // the same, when no reply is awaited
constexpr uint64_t kMaxBusy = 2 * kMs;       // spinning, before the loop gets its turn
constexpr int kMaxParkUs = 1000;             // sleeping in a receive or send
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

bool HungUp(int fd) {
  pollfd p{fd, 0, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
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
    // Traffic that spinning would have caught.
    if (uv_hrtime() - last < self->options_.spin_us * 1000ull)
      self->spin_credit_ = std::min(kMaxCredit, self->spin_credit_ + 2);
    self->Spin();
  }
  self->Settle();
}

void Session::OnIdle(uv_idle_t* handle) {
  auto* self = static_cast<Session*>(handle->data);
  uv_idle_stop(handle);
  if (self->finishing_) return;
  self->Spin();
  self->Settle();
}

// Polls both sockets for a while after the last byte: waking from sleep costs tens of
// microseconds, as much as the round trip itself. Given up when it does not pay.
void Session::Spin() {
  if (options_.spin_us == 0) return Park();
  if (spin_credit_ <= 0) return;
  const uint64_t window = options_.spin_us * 1000ull;
  const uint64_t start = uv_hrtime();
  uint64_t deadline = start + window;
  for (uint32_t i = 0;; i++) {
    if (!requests_.queue_empty() || !replies_.queue_empty()) return;  // somebody is slow: sleep
    // A synchronous client sends nothing while it waits, so mostly look where something is due.
    const bool awaiting = !pairing_.empty();
    bool got = false;
    if (awaiting || i % 8 == 7) got |= MayReadServer() && PumpReplies();
    if (!awaiting || i % 8 == 3) got |= MayReadClient() && PumpRequests();
    if (client_eof_ || server_eof_) return;
    const uint64_t now = uv_hrtime();
    if (got) {
      deadline = now + window;
      if (spin_credit_ < kMaxCredit) spin_credit_++;
    } else if (now >= deadline) {
      spin_credit_ -= 4;
      return;
    } else {
      ::sched_yield();  // whom this woke may be waiting for this very core
    }
    if (now - start >= kMaxBusy) {
      uv_idle_start(&handles_->idle, OnIdle);  // go on after the loop's other work
      return;
    }
  }
}

// Without spin: sleeps in the receive itself where something is due, which wakes quicker than the
// event loop does, and takes one system call less. Gives up after a short silence.
void Session::Park() {
  const uint64_t start = uv_hrtime();
  for (;;) {
    if (!requests_.queue_empty() || !replies_.queue_empty()) return;
    if (request_framer_.raw() || reply_framer_.raw()) return;
    const bool got = pairing_.empty() ? MayReadClient() && PumpRequests(Channel::Wait::kBriefly)
                                      : MayReadServer() && PumpReplies(Channel::Wait::kBriefly);
    if (!got || client_eof_ || server_eof_) return;
    if (uv_hrtime() - start >= kMaxBusy) {
      uv_idle_start(&handles_->idle, OnIdle);  // go on after the loop's other work
      return;
    }
  }
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
  switch (result) {
    case Channel::SendResult::kDone:
      return true;
    case Channel::SendResult::kBlocked:
      return false;
    case Channel::SendResult::kRetry:
      retrying_ = true;
      uv_timer_start(&handles_->retry, OnRetry, 1, 0);
      return false;
    case Channel::SendResult::kClosed:
      NoteClosed("server");
      server_closed_ = true;
      undelivered_to_server_ += requests_.DropQueue();
      return true;
  }
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
  switch (result) {
    case Channel::SendResult::kDone:
      return true;
    case Channel::SendResult::kBlocked:
      return false;
    case Channel::SendResult::kRetry:
      retrying_ = true;
      uv_timer_start(&handles_->retry, OnRetry, 1, 0);
      return false;
    case Channel::SendResult::kClosed:
      NoteClosed("client");
      client_closed_ = true;
      undelivered_to_client_ += replies_.DropQueue();
      return true;
  }
  return true;
}

void Session::OnRetry(uv_timer_t* handle) {
  auto* self = static_cast<Session*>(handle->data);
  self->retrying_ = false;
  if (self->finishing_) return;
  if (self->FlushToServer()) self->ForwardRequests();
  if (self->FlushToClient()) self->ForwardReplies();
  self->Settle();
}

// ---- silence and the end ---------------------------------------------------------------------

void Session::NoteRevision() {
  const wire::Revision revision = request_framer_.revision();
  if (revision == wire::Revision::kUndecided) return;
  revision_noted_ = true;
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::REVISION);
  event.set_connection(peers_.number);
  event.set_revision(static_cast<uint32_t>(revision));
  event.set_text(options_.revision != wire::Revision::kUndecided ? "by option"
                                                                 : "by the first frame");
  tap_.Event(event, uv_hrtime());
  log_(LogLevel::kDebug,
       fmt::format("client {} speaks R{}", peers_.number, static_cast<int>(revision)));
}

void Session::Poison(std::string_view text) {
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::POISON);
  event.set_connection(peers_.number);
  event.set_text(std::string(text));
  tap_.Event(event, uv_hrtime());
}

void Session::NoteClosed(const char* side) {
  if (!closed_first_.empty()) return;
  closed_first_ = side;
  // While the server still has the memory: it goes away with the connection.
  if (options_.capture) {
    capture_ended_ = true;
    options_.capture->OnDisconnect(uv_hrtime());
  } else if (options_.capture_sysmem && sysmem_->size() > 0) {
    Snapshot();
  }
}

bool Session::ClientGone() const {
  return client_closed_ || (client_eof_ && HungUp(peers_.client.get()));
}

// The client will send no more and all its whole messages have been sent on.
void Session::EndOfRequests() {
  requests_ended_ = true;
  const auto rest = requests_.unframed();
  const uint64_t now = uv_hrtime();
  if (!rest.empty()) {
    undelivered_to_server_ += rest.size();
    log_(LogLevel::kWarn,
         fmt::format("client {} went away inside a message: {} bytes are not passed on",
                     peers_.number, rest.size()));
    tap_.TruncatedRequest(rest, request_framer_.revision(), now);
    requests_.ClaimDescriptors(rest.size(), false);
    requests_.Drop(rest.size());
  }
  tap_.TruncatedPayload(now);
  if (intercept_ && AutopsyBegins("after the client has left", 0)) {
    end_waits_ = true;
    return;
  }
  PassOnEndOfRequests();
}

void Session::PassOnEndOfRequests() {
  end_waits_ = false;
  if (options_.hold_upstream && !server_eof_ && !server_closed_) {
    held_ = true;
    log_(LogLevel::kInfo,
         fmt::format("client {} is gone, the server's connection is held: its shared memory stays "
                     "pinned until the next client comes or this proxy ends",
                     peers_.number));
    return;
  }
  ::shutdown(peers_.server.get(), SHUT_WR);
}

// The server will send no more and everything it sent has been sent on.
void Session::EndOfReplies() {
  replies_ended_ = true;
  replies_ended_ns_ = uv_hrtime();
  // On a Unix socket a server that is gone altogether shows as such; then the client's next send
  // should fail at once, as it would without a proxy. Only half of a TCP connection can be known.
  const bool whole = server_closed_ || (peers_.server_is_unix && HungUp(peers_.server.get()));
  if (whole) server_closed_ = true;
  ::shutdown(peers_.client.get(), whole && peers_.client_is_unix ? SHUT_RDWR : SHUT_WR);
}

void Session::Settle() {
  if (finishing_) return;
  if (intercept_ && !intercept_->close_reason.empty() && !intercept_->holding) {
    FlushToServer();
    return Close(intercept_->close_reason);
  }
  if (client_eof_ && !requests_ended_ && (requests_.queue_empty() || server_closed_) &&
      !(intercept_ && intercept_->BlocksRequests()))
    EndOfRequests();
  if (server_eof_ && !replies_ended_) {
    const auto rest = replies_.unframed();
    if (!rest.empty() || reply_framer_.in_body()) {
      const uint64_t now = uv_hrtime();
      tap_.TruncatedReply(now);
      if (intercept_ && OwnQuestionIsNext()) {
        replies_.ClaimDescriptors(rest.size(), true);
        replies_.Drop(rest.size());
      } else if (!rest.empty()) {
        const auto fds = replies_.ClaimDescriptors(rest.size(), true);
        tap_.Raw(true, rest, static_cast<uint32_t>(fds.size()), "server closed inside a reply",
                 now);
        log_(LogLevel::kWarn,
             fmt::format("server closed inside a reply: {} bytes of it passed on", rest.size()));
        if (replies_.queue_full()) FlushToClient();
        if (!replies_.queue_full()) {
          replies_.Queue(rest.size());
          FlushToClient();
        }
      }
    }
    if (replies_.queue_empty() && replies_.unframed().empty()) EndOfReplies();
  }
  const bool all_said = (requests_ended_ || server_closed_) && !held_ && !end_waits_;
  if (server_eof_ && replies_ended_ && client_eof_) return Finish();
  if (held_ && server_eof_ && replies_ended_) return Finish();
  if (all_said && client_eof_ && server_eof_ && client_closed_) return Finish();
  const bool needs_tick = client_eof_ || server_eof_ || server_closed_ ||
                          !requests_.unframed().empty() || reply_framer_.in_body() ||
                          !replies_.unframed().empty() || intercept_;
  if (needs_tick && !handles_->ticking) {
    handles_->ticking = true;
    uv_timer_start(&handles_->tick, OnTick, kTickMs, kTickMs);
  }
  UpdatePolls();
}

void Session::OnTick(uv_timer_t* handle) {
  static_cast<Session*>(handle->data)->Tick();
}

void Session::Tick() {
  if (finishing_) return;
  const uint64_t now = uv_hrtime();
  bool needed = client_eof_ || server_eof_ || server_closed_ || intercept_;
  if (intercept_) AutopsyTick(now);
  if (finishing_) return;
  if (const auto rest = requests_.unframed(); !rest.empty() && !client_eof_) {
    needed = true;
    if (now - last_request_ns_ >= kSilence && requests_.queue_empty() &&
        pairing_.size() < wire::kMaxPending) {
      const bool header_only = rest.size() < wire::kRequestSizeR2 && !request_framer_.raw();
      const bool was_undecided = request_framer_.revision() == wire::Revision::kUndecided;
      const bool changed = request_framer_.OnSilence(rest);
      const bool r1 = was_undecided && request_framer_.revision() == wire::Revision::kR1;
      if (r1 || (header_only && !changed && !std::exchange(silence_warned_, true)))
        alerts_.LooksLikeR1(r1);
      if (changed) ForwardRequests();
    }
  }
  if (reply_framer_.in_body()) {
    needed = true;
    const wire::PendingReply& waiting = pairing_.front();
    if (now - last_reply_ns_ >= kShortReply && replies_.queue_empty() &&
        std::exchange(short_reply_call_, waiting.call) != waiting.call)
      alerts_.ShortReply(waiting.header, reply_framer_.body_missing());
  }
  const uint64_t quiet = now - std::max(last_request_ns_, last_reply_ns_);
  // One side is gone for good: the other one gets a while to close by itself.
  if (client_eof_ && !held_ && !end_waits_ && requests_ended_ && !server_eof_) {
    const bool gone = ClientGone();
    const bool due = !pairing_.empty() || !replies_.queue_empty();
    if ((gone && quiet >= kLinger) || (!peers_.client_is_unix && quiet >= kTcpLinger) ||
        (!due && !reply_framer_.raw() && quiet >= kNothingDue))
      return Finish();
  }
  if (replies_ended_ &&
      (quiet >= kLinger || (server_closed_ && now - replies_ended_ns_ >= kLinger)))
    return Finish();
  if (server_closed_ && !server_eof_ && quiet >= kLinger) return Finish();
  if (!needed) {
    handles_->ticking = false;
    uv_timer_stop(&handles_->tick);
  }
  Settle();
}

void Session::UpdatePolls() {
  int client = 0, server = 0;
  if (MayReadClient()) client |= UV_READABLE;
  if (!replies_.queue_empty() && !client_closed_ && !retrying_) client |= UV_WRITABLE;
  if (MayReadServer()) server |= UV_READABLE;
  if (!requests_.queue_empty() && !server_closed_ && !retrying_ &&
      !(intercept_ && intercept_->holding))
    server |= UV_WRITABLE;
  const auto update = [](uv_poll_t* handle, int& mask, int wanted) {
    if (mask == wanted) return;
    mask = wanted;
    if (wanted == 0)
      uv_poll_stop(handle);
    else
      uv_poll_start(handle, wanted, OnPoll);
  };
  update(&handles_->client, handles_->client_mask, client);
  update(&handles_->server, handles_->server_mask, server);
}

void Session::Snapshot() {
  if (finishing_) return;  // nobody would wait for it
  if (options_.capture) {
    if (!capture_ended_) options_.capture->OnSnapshotRequest(uv_hrtime());
    return;
  }
  struct Job {
    uv_work_t work;
    Session* session;
    std::shared_ptr<SysmemTable> table;
    trace::TraceWriter* writer;
    bool at_end;
  };
  auto* job = new Job{{}, this, sysmem_, &tap_.writer(), !closed_first_.empty()};
  job->work.data = job;
  snapshots_running_++;
  uv_queue_work(
      loop_, &job->work,
      [](uv_work_t* work) {
        auto* j = static_cast<Job*>(work->data);
        j->table->SnapshotSmall([j](const SysmemBytes& bytes) {
          pb::Packet packet;
          pb::SysmemData& data = *packet.mutable_sysmem();
          data.set_index(bytes.index);
          data.set_offset(bytes.offset);
          data.set_why(j->at_end ? pb::SysmemData::END : pb::SysmemData::SIGNAL);
          if (bytes.data.empty()) {
            data.set_zeros(true);
            data.set_size(bytes.zeros);
          } else {
            data.set_data(bytes.data.data(), bytes.data.size());
          }
          j->writer->Append(packet, uv_hrtime());
        });
      },
      [](uv_work_t* work, int) {
        auto* j = static_cast<Job*>(work->data);
        Session* session = j->session;
        delete j;
        session->snapshots_running_--;
        if (session->finishing_) session->Finish();
      });
}

void Session::Close(std::string reason) {
  if (finishing_) return;
  if (held_ && client_eof_)
    end_text_ = "held connection closed: " + reason;
  else
    end_text_ = reason;
  NoteClosed("proxy");
  FlushToServer();
  FlushToClient();
  Finish();
}

void Session::Finish() {
  if (!finishing_) {
    finishing_ = true;
    uv_poll_stop(&handles_->client);
    uv_poll_stop(&handles_->server);
    uv_timer_stop(&handles_->tick);
    uv_timer_stop(&handles_->retry);
    uv_timer_stop(&handles_->hold);
    uv_idle_stop(&handles_->idle);
    const uint64_t now = uv_hrtime();
    tap_.TruncatedReply(now);
    tap_.TruncatedPayload(now);
  }
  if (snapshots_running_ > 0) return;  // comes back here
  if (handles_open_ > 0) return;
  undelivered_to_server_ += requests_.DropQueue() + requests_.unframed().size();
  undelivered_to_client_ += replies_.DropQueue() + replies_.unframed().size();
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::DISCONNECT);
  event.set_connection(peers_.number);
  event.set_closed_first(closed_first_);
  event.set_text(end_text_.empty() ? closed_first_ + " closed" : end_text_);
  uint64_t unanswered = pairing_.size();
  if (intercept_) {
    intercept_->lines.Tick(uv_hrtime(), true);
    if (intercept_->autopsy) unanswered -= std::min(unanswered, intercept_->autopsy->unanswered());
  }
  event.set_unanswered(unanswered);
  event.set_undelivered_to_server(undelivered_to_server_);
  event.set_undelivered_to_client(undelivered_to_client_);
  event.set_revision(static_cast<uint32_t>(request_framer_.revision()));
  tap_.Event(event, uv_hrtime());
  log_(LogLevel::kInfo,
       fmt::format("client {} done: {}; {} bytes to server, {} to client, unanswered={} errors={}",
                   peers_.number, event.text(), requests_.sent(), replies_.sent(), unanswered,
                   alerts_.errors()));
  CloseHandles();
}

void Session::CloseHandles() {
  static constexpr auto closed = [](uv_handle_t* handle) {
    auto* self = static_cast<Session*>(handle->data);
    if (--self->handles_open_ > 0) return;
    delete self->handles_;
    self->handles_ = nullptr;
    self->peers_.client.reset();
    self->peers_.server.reset();
    if (self->over_) self->over_();
  };
  handles_open_ = 6;
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->client), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->server), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->tick), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->retry), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->hold), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->idle), closed);
}

}  // namespace tg::proxy
