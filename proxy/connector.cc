#include "proxy/connector.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace tg::proxy {
namespace {

constexpr uint64_t kRetryMs = 50;
constexpr uint64_t kTcpTimeoutMs = 3000;  // as the client's REMOTE_TIMEOUT

}  // namespace

Connector::Connector(uv_loop_t* loop, const ConnectOptions& options, LogFn log,
                     std::function<void(std::string)> note)
    : loop_(loop), options_(options), log_(std::move(log)), note_(std::move(note)) {}

Connector::~Connector() {
  StopPolling();
  if (timer_)
    uv_close(reinterpret_cast<uv_handle_t*>(timer_),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

void Connector::Start(Done done) {
  done_ = std::move(done);
  timer_ = new uv_timer_t;
  uv_timer_init(loop_, timer_);
  timer_->data = this;
  Try();
}

void Connector::Try() {
  tried_++;
  ConnectAttempt attempt = StartConnect(options_.upstream);
  if (!attempt.fd.valid()) {
    Failed(attempt.error, attempt.problem);
    return;
  }
  pending_ = std::move(attempt.fd);
  if (!attempt.in_progress) {
    Connected(0);
    return;
  }
  poll_ = new uv_poll_t;
  uv_poll_init(loop_, poll_, pending_.get());
  poll_->data = this;
  uv_poll_start(poll_, UV_WRITABLE, [](uv_poll_t* handle, int, int) {
    auto* self = static_cast<Connector*>(handle->data);
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(self->pending_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    self->Connected(error);
  });
  uv_timer_start(
      timer_, [](uv_timer_t* timer) { static_cast<Connector*>(timer->data)->Connected(ETIMEDOUT); },
      kTcpTimeoutMs, 0);
}

// A stopped poll handle has let go of its descriptor; only its memory is still the loop's.
void Connector::StopPolling() {
  if (!poll_) return;
  uv_poll_stop(poll_);
  uv_close(reinterpret_cast<uv_handle_t*>(std::exchange(poll_, nullptr)),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_poll_t*>(handle); });
}

void Connector::Connected(int error) {
  uv_timer_stop(timer_);
  StopPolling();
  if (error == 0) {
    const Done done = std::move(done_);  // may delete this
    done(std::move(pending_));
    return;
  }
  pending_.reset();
  Failed(error, {});
}

void Connector::Failed(int error, const std::string& problem) {
  const std::string where = wire::FormatAddress(options_.upstream);
  const bool nobody = error == ECONNREFUSED || error == ENOENT;
  const std::string why = problem.empty() ? ErrnoText(error) : problem;
  if (tried_ == 1) {
    if (!options_.app.empty() && options_.upstream.is_unix() && nobody) {
      StartApp();
    } else if (error == EAGAIN) {
      log_(LogLevel::kWarn, where + ": its queue of waiting clients is full; trying again");
    } else {
      log_(LogLevel::kWarn, "no server at " + where + " (" + why + "); trying again");
    }
  }
  const int limit = app_started_ ? options_.tries : options_.tries_alone;
  // A full queue (EAGAIN) is somebody being served: worth waiting for as long as the client does.
  const bool again = nobody || error == EAGAIN || error == ETIMEDOUT;
  if (again && (error == EAGAIN || tried_ < limit)) {
    uv_timer_start(
        timer_, [](uv_timer_t* timer) { static_cast<Connector*>(timer->data)->Try(); }, kRetryMs,
        0);
    return;
  }
  std::string text = "no server at " + where + " (" + why + ")";
  text += options_.upstream.is_unix()
              ? (app_started_ ? ": the app was started but does not listen there"
                              : ": start the app there (its executable with: server PATH), or give "
                                "--upstream or --app")
              : ": start serve.py there or give --upstream";
  const Done done = std::move(done_);  // may delete this
  done(Fail(Error::Code::kNotFound, std::move(text)));
}

void Connector::StartApp() {
  app_started_ = true;
  std::string executable = options_.app, verb = "server", path = options_.upstream.path;
  char* args[] = {executable.data(), verb.data(), path.data(), nullptr};
  uv_process_options_t spawn{};
  spawn.file = executable.c_str();
  spawn.args = args;
  spawn.flags = UV_PROCESS_DETACHED;
  uv_stdio_container_t stdio[3] = {};
  for (auto& s : stdio) s.flags = UV_IGNORE;
  spawn.stdio = stdio;
  spawn.stdio_count = 3;
  spawn.exit_cb = [](uv_process_t* process, int64_t, int) {
    uv_close(reinterpret_cast<uv_handle_t*>(process),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_process_t*>(handle); });
  };
  auto* process = new uv_process_t;
  if (const int rc = uv_spawn(loop_, process, &spawn); rc != 0) {
    log_(LogLevel::kError,
         "cannot start " + Printable(executable) + ": " + uv_strerror(rc) + "; give --app");
    uv_close(reinterpret_cast<uv_handle_t*>(process),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_process_t*>(handle); });
    app_started_ = false;
    return;
  }
  uv_unref(reinterpret_cast<uv_handle_t*>(process));  // it outlives us, as it would a client
  const std::string text = "nobody listens at " + path + ": started " + executable + " (pid " +
                           std::to_string(uv_process_get_pid(process)) + ")";
  log_(LogLevel::kInfo, text);
  note_(text);
}

}  // namespace tg::proxy
