#include "proxy/proxy.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "proxy/platform.h"
#include "schemas/trace/trace.pb.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;

constexpr size_t kMaxWaiting = 64;
constexpr uint64_t kWatchMs = 1000;

std::string Who(uint32_t number, pid_t pid) {
  return pid > 0 ? fmt::format("client {} (pid {})", number, pid)
                 : fmt::format("client {}", number);
}

// Gone before it was served, without having sent anything.
bool LeftWithoutAWord(int fd) {
  char byte;
  const ssize_t n = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

std::string LossText(const std::vector<trace::LossTotal>& losses) {
  std::string text;
  for (const trace::LossTotal& loss : losses)
    text += fmt::format(" {}: {} calls, {} packets, {} bytes;",
                        pb::Loss::Cause_Name(static_cast<pb::Loss::Cause>(loss.cause)), loss.calls,
                        loss.packets, loss.bytes);
  return text;
}

}  // namespace

Proxy::Proxy(uv_loop_t* loop, const ProxyOptions& options, std::unique_ptr<Listener> listener,
             trace::TraceWriter& writer, LogFn log)
    : loop_(loop),
      options_(options),
      listener_(std::move(listener)),
      writer_(writer),
      log_(std::move(log)) {}

Proxy::~Proxy() {
  if (watch_)
    uv_close(reinterpret_cast<uv_handle_t*>(watch_),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

void Proxy::Start() {
  listener_->Start(
      loop_, [this](UniqueFd fd) { Accepted(std::move(fd)); },
      [this](std::string text) {
        pb::SessionEvent event;
        event.set_kind(pb::SessionEvent::REPLACED);
        event.set_text(std::move(text));
        Note(event);
      });
  watch_ = new uv_timer_t;
  uv_timer_init(loop_, watch_);
  watch_->data = this;
  uv_timer_start(
      watch_, [](uv_timer_t* timer) { static_cast<Proxy*>(timer->data)->Watch(); }, kWatchMs,
      kWatchMs);
}

void Proxy::Note(const pb::SessionEvent& event) {
  pb::Packet packet;
  *packet.mutable_event() = event;
  writer_.Append(packet, uv_hrtime());
}

void Proxy::Watch() {
  // It came while the one before was still there; held since, that one will not make room by
  // itself.
  if (session_ && session_->held() && !waiting_.empty()) session_->Close("the next client came");
  if (session_ && session_->held() && !gone_told_) {
    gone_told_ = true;
    if (options_.client_gone) options_.client_gone();
  }
  const bool paused = writer_.paused();
  if (paused == trace_paused_) return;
  trace_paused_ = paused;
  if (paused)
    log_(LogLevel::kError,
         "the trace cannot be written (disk full?): traffic goes on unrecorded, "
         "what is lost is counted;" +
             LossText(writer_.losses()));
  else
    log_(LogLevel::kWarn, "the trace is written again; lost:" + LossText(writer_.losses()));
}

void Proxy::Accepted(UniqueFd fd) {
  Client client{std::move(fd), ++clients_, 0};
  if (listener_->address().is_unix()) client.pid = PeerPid(client.fd.get());
  if (session_ || connector_ || !waiting_.empty()) {
    if (waiting_.size() >= kMaxWaiting) {
      log_(LogLevel::kError, fmt::format("{} is turned away: {} clients wait already",
                                         Who(client.number, client.pid), waiting_.size()));
      return;
    }
    const bool held = session_ && session_->held();
    if (!held) {
      const uint32_t served = session_ ? session_->number() : connecting_.number;
      const pid_t served_pid = session_ ? session_->client_pid() : connecting_.pid;
      std::string text = fmt::format("{} is waiting for {}, upstream serves one at a time",
                                     Who(client.number, client.pid), Who(served, served_pid));
      log_(LogLevel::kWarn, text);
      pb::SessionEvent event;
      event.set_kind(pb::SessionEvent::WAITING);
      event.set_connection(client.number);
      event.set_client_pid(static_cast<uint32_t>(client.pid));
      event.set_text(std::move(text));
      Note(event);
    }
    waiting_.push_back(std::move(client));
    if (held) session_->Close("the next client came");
    return;
  }
  waiting_.push_back(std::move(client));
  Next();
}

void Proxy::Next() {
  while (!waiting_.empty() && !session_ && !connector_ && !stopping_) {
    connecting_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (LeftWithoutAWord(connecting_.fd.get())) {
      log_(LogLevel::kInfo,
           fmt::format("{} left before it was served", Who(connecting_.number, connecting_.pid)));
      connecting_.fd.reset();
      continue;
    }
    connector_ =
        std::make_unique<Connector>(loop_, options_.connect, log_, [this](std::string text) {
          pb::SessionEvent event;
          event.set_kind(pb::SessionEvent::APP_STARTED);
          event.set_connection(connecting_.number);
          event.set_text(std::move(text));
          Note(event);
        });
    connector_->Start([this](Result<UniqueFd> server) { Connected(std::move(server)); });
  }
}

void Proxy::Connected(Result<UniqueFd> server) {
  // The connector calls from within itself: it goes when this frame is left.
  const std::unique_ptr<Connector> done = std::move(connector_);
  if (!server) {
    log_(LogLevel::kError,
         fmt::format("{}: {}", Who(connecting_.number, connecting_.pid), server.error().message));
    pb::SessionEvent event;
    event.set_kind(pb::SessionEvent::UPSTREAM_REFUSED);
    event.set_connection(connecting_.number);
    event.set_text(server.error().message);
    Note(event);
    connecting_.fd.reset();
    Next();
    return;
  }
  Session::Peers peers;
  peers.client = std::move(connecting_.fd);
  peers.server = std::move(*server);
  peers.client_is_unix = listener_->address().is_unix();
  peers.server_is_unix = options_.connect.upstream.is_unix();
  peers.number = connecting_.number;
  peers.client_pid = connecting_.pid;
  peers.server_pid = peers.server_is_unix ? PeerPid(peers.server.get()) : 0;
  const std::string name = peers.client_pid > 0 ? ProcessName(peers.client_pid) : "";
  log_(LogLevel::kInfo,
       fmt::format("{}{} connected to {}{}", Who(peers.number, peers.client_pid),
                   name.empty() ? "" : " " + Printable(name, 64),
                   wire::FormatAddress(options_.connect.upstream),
                   peers.server_pid > 0 ? fmt::format(" (pid {})", peers.server_pid) : ""));
  session_ = std::make_unique<Session>(loop_, options_.session, std::move(peers), writer_,
                                       counters_, log_, [this] { Over(); });
  session_->Start();
}

void Proxy::Over() {
  session_.reset();
  if (options_.client_gone && !gone_told_) options_.client_gone();
  gone_told_ = false;
  if (stopping_) {
    Stopped();
    return;
  }
  Next();
}

void Proxy::Snapshot() {
  if (session_)
    session_->Snapshot();
  else
    log_(LogLevel::kInfo, "snapshot asked for, but no client is connected");
}

void Proxy::Stop(std::string reason, std::function<void()> stopped) {
  if (stopping_) return;
  stopping_ = true;
  stopped_ = std::move(stopped);
  listener_->Stop();
  connector_.reset();
  connecting_.fd.reset();
  waiting_.clear();
  if (session_)
    session_->Close(std::move(reason));
  else
    Stopped();
}

void Proxy::Stopped() {
  if (stopped_) std::exchange(stopped_, nullptr)();
}

}  // namespace tg::proxy
