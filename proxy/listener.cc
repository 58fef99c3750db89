#include "proxy/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proxy/platform.h"

namespace tg::proxy {
namespace {

constexpr int kBacklog = 128;
constexpr uint64_t kCheckMs = 500;

std::string RealPath(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (!resolved) return path;
  std::string out = resolved;
  std::free(resolved);
  return out;
}

// A socket file whose owner is not in the tables we can read: only asking tells. Nobody but another
// proxy or server of the same user can be there, on the path we were told to take.
bool RefusesConnections(const std::string& path) {
  wire::Address address;
  address.path = path;
  const ConnectAttempt attempt = StartConnect(address);
  return attempt.error == ECONNREFUSED || attempt.error == ENOENT;
}

Result<void> ClearPath(const std::string& path, const LogFn& log) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return {};
    return Fail(Error::Code::kIo, "cannot look at " + path + ": " + ErrnoText(errno));
  }
  if (!S_ISSOCK(st.st_mode))
    return Fail(Error::Code::kUsage,
                path + " exists and is no socket: choose another path with --listen");
  const PathOwner owner = FindPathOwner(path);
  if (owner.listening || (!owner.known && !RefusesConnections(path)))
    return Fail(Error::Code::kUsage, path + " is in use by " + owner.Describe() +
                                         ": stop it, or choose another path with --listen");
  if (::unlink(path.c_str()) != 0)
    return Fail(Error::Code::kIo,
                "cannot remove the stale socket " + path + ": " + ErrnoText(errno));
  log(LogLevel::kInfo, "removed the stale socket " + path + " (nobody listens on it)");
  return {};
}

Result<UniqueFd> BindUnix(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd.valid()) return Fail(Error::Code::kIo, "socket: " + ErrnoText(errno));
  PrepareDescriptor(fd.get());
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (path.size() >= sizeof un.sun_path)
    return Fail(Error::Code::kUsage, "socket path is " + std::to_string(path.size()) +
                                         " bytes long, this system takes at most " +
                                         std::to_string(wire::UnixPathLimit()));
  std::memcpy(un.sun_path, path.data(), path.size());
  const mode_t before = ::umask(0177);
  const int rc = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&un), sizeof un);
  const int error = errno;
  ::umask(before);
  if (rc != 0) return Fail(Error::Code::kIo, "cannot bind " + path + ": " + ErrnoText(error));
  return fd;
}

Result<UniqueFd> BindTcp(wire::Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int rc = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); rc != 0)
    return Fail(Error::Code::kUsage,
                "cannot resolve '" + address.host + "': " + ::gai_strerror(rc));
  std::string problem = "no address";
  UniqueFd fd;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    fd.reset(::socket(a->ai_family, a->ai_socktype, 0));
    if (!fd.valid()) continue;
    PrepareDescriptor(fd.get());
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) break;
    problem = ErrnoText(errno);
    fd.reset();
  }
  ::freeaddrinfo(found);
  if (!fd.valid())
    return Fail(Error::Code::kIo, "cannot bind " + wire::FormatAddress(address) + ": " + problem);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
    if (bound.ss_family == AF_INET)
      address.port = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    else if (bound.ss_family == AF_INET6)
      address.port = ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  }
  return fd;
}

}  // namespace

std::string PathOwner::Describe() const {
  if (pid <= 0) return "another process";
  std::string out = "process " + std::to_string(pid);
  if (!name.empty()) out += " (" + Printable(name, 64) + ")";
  return out;
}

PathOwner FindPathOwner(const std::string& path) {
  PathOwner owner;
  std::vector<UnixSocket> sockets;
  owner.known = ListUnixSockets(sockets);
  const std::string real = RealPath(path);
  for (const UnixSocket& socket : sockets) {
    if (!socket.listening || socket.path.empty() ||
        (socket.path != path && RealPath(socket.path) != real))
      continue;
    owner.listening = true;
    // The tables still show a socket whose file is gone, our own replaced one for example.
    if (socket.holders.empty() || (owner.pid > 0 && owner.pid != ::getpid())) continue;
    owner.pid = socket.holders.front();
  }
  if (owner.pid > 0) owner.name = ProcessName(owner.pid);
  return owner;
}

struct Listener::Handles {
  uv_poll_t poll;
  uv_timer_t timer;
  int open = 2;
};

Listener::Listener(wire::Address address, UniqueFd fd, LogFn log)
    : address_(std::move(address)), fd_(std::move(fd)), log_(std::move(log)) {
  if (address_.is_unix()) ::lstat(address_.path.c_str(), &identity_);
}

Listener::~Listener() {
  Stop();
  if (address_.is_unix() && Ours()) ::unlink(address_.path.c_str());
}

Result<std::unique_ptr<Listener>> Listener::Open(const wire::Address& address, const LogFn& log) {
  wire::Address actual = address;
  if (address.is_unix()) {
    if (auto clear = ClearPath(address.path, log); !clear)
      return tl::unexpected(std::move(clear.error()));
  }
  auto fd = address.is_unix() ? BindUnix(address.path) : BindTcp(actual);
  if (!fd) return tl::unexpected(std::move(fd.error()));
  std::unique_ptr<Listener> listener(new Listener(std::move(actual), std::move(*fd), log));
  if (::listen(listener->fd_.get(), kBacklog) != 0)
    return Fail(Error::Code::kIo,
                "cannot listen on " + wire::FormatAddress(address) + ": " + ErrnoText(errno));
  return listener;
}

void Listener::Start(uv_loop_t* loop, std::function<void(UniqueFd)> accepted,
                     std::function<void(std::string)> replaced) {
  accepted_ = std::move(accepted);
  replaced_callback_ = std::move(replaced);
  handles_ = new Handles;
  uv_poll_init(loop, &handles_->poll, fd_.get());
  uv_timer_init(loop, &handles_->timer);
  handles_->poll.data = handles_->timer.data = this;
  uv_poll_start(&handles_->poll, UV_READABLE, [](uv_poll_t* handle, int, int) {
    static_cast<Listener*>(handle->data)->Accept();
  });
  if (address_.is_unix())
    uv_timer_start(
        &handles_->timer,
        [](uv_timer_t* handle) { static_cast<Listener*>(handle->data)->CheckPath(); }, kCheckMs,
        kCheckMs);
}

void Listener::Stop() {
  if (!handles_) return;
  static constexpr auto closed = [](uv_handle_t* handle) {
    auto* handles = static_cast<Handles*>(handle->data);
    if (--handles->open == 0) delete handles;
  };
  uv_poll_stop(&handles_->poll);
  handles_->poll.data = handles_->timer.data = handles_;
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->poll), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->timer), closed);
  handles_ = nullptr;
}

void Listener::Accept() {
  // A few at a time; the loop comes back while more wait.
  for (int i = 0; i < 16 && handles_; i++) {
    UniqueFd fd(::accept(fd_.get(), nullptr, nullptr));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE)
        log_(LogLevel::kError,
             "cannot accept a client: " + ErrnoText(errno) + "; raise the limit (ulimit -n)");
      return;
    }
    PrepareDescriptor(fd.get());
    TuneDataSocket(fd.get(), address_.is_unix());
    accepted_(std::move(fd));
  }
}

bool Listener::Ours() const {
  struct stat now {};
  return ::lstat(address_.path.c_str(), &now) == 0 && now.st_dev == identity_.st_dev &&
         now.st_ino == identity_.st_ino && now.st_ctime == identity_.st_ctime;
}

void Listener::CheckPath() {
  if (replaced_ || Ours()) return;
  struct stat now {};
  std::string text;
  const bool there = ::lstat(address_.path.c_str(), &now) == 0;
  if (there && now.st_dev == identity_.st_dev && now.st_ino == identity_.st_ino) {
    // Its mode was changed, or the inode number was used again: the tables tell.
    const PathOwner owner = FindPathOwner(address_.path);
    if (owner.known && owner.pid == ::getpid()) {
      identity_ = now;
      return;
    }
  }
  replaced_ = true;
  if (!there) {
    text = "our socket " + address_.path +
           " was removed: new clients will start the server on that path and bypass this proxy; "
           "restart it";
  } else {
    const PathOwner owner = FindPathOwner(address_.path);
    text = "our socket " + address_.path + " was replaced by " + owner.Describe() +
           ": new clients reach that one and bypass this proxy. Start the proxy before the client, "
           "and do not run a server on this path";
  }
  log_(LogLevel::kWarn, text);
  replaced_callback_(text);
}

}  // namespace tg::proxy
