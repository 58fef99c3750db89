// How a session watches over silence, and how it ends: what is passed on before a side is closed,
// who closed first, how long the other side gets.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "proxy/capture/capture.h"
#include "proxy/intercept.h"
#include "proxy/session_handles.h"
#include "schemas/trace/trace.pb.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kTickMs = 100;
constexpr uint64_t kSilence = 1000 * kMs;     // of a client, in the middle of a header
constexpr uint64_t kShortReply = 2000 * kMs;  // of a server, in the middle of a body
constexpr uint64_t kLinger = 2000 * kMs;      // for the other side to close, when one is gone
constexpr uint64_t kTcpLinger = 10'000 * kMs;
constexpr uint64_t kNothingDue = 300 * kMs;  // the same, when no reply is awaited

bool HungUp(int fd) {
  pollfd p{fd, 0, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

}  // namespace

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
    if (intercept_->autopsy)
      unanswered -= std::min<uint64_t>(unanswered, intercept_->autopsy->unanswered());
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
