#include "replay/sim/server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "replay/sim/server_app.h"
#include "replay/sim/server_tcp.h"

namespace tg::sim {
namespace {

tl::unexpected<Error> SystemError(const std::string& what) {
  return Fail(Error::Code::kIo, what + ": " + std::strerror(errno));
}

}  // namespace

Server::Server(Gpu& gpu, ServerOptions options) : gpu_(gpu), options_(std::move(options)) {
  if (options_.listen.is_unix()) {
    protocol_ = std::make_unique<AppProtocol>(gpu);
  } else {
    protocol_ = std::make_unique<TcpProtocol>(gpu);
  }
}

Server::~Server() {
  if (listener_.valid() && options_.listen.is_unix() && !keep_file_)
    unlink(options_.listen.path.c_str());
}

Result<std::unique_ptr<Server>> Server::Listen(Gpu& gpu, ServerOptions options) {
  std::unique_ptr<Server> server(new Server(gpu, std::move(options)));
  int wake[2];
  if (pipe(wake) != 0) return SystemError("pipe");
  server->wake_read_ = UniqueFd(wake[0]);
  server->wake_write_ = UniqueFd(wake[1]);
  for (int fd : wake) fcntl(fd, F_SETFD, FD_CLOEXEC);
  auto listening = server->options_.listen.is_unix() ? server->ListenUnix() : server->ListenTcp();
  if (!listening) return tl::unexpected<Error>(listening.error());
  return server;
}

Result<void> Server::ListenUnix() {
  const std::string& path = options_.listen.path;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > wire::UnixPathLimit())
    return Fail(Error::Code::kUsage,
                path + ": a socket's path may have " + std::to_string(wire::UnixPathLimit()) +
                    " bytes on this system, this one has " + std::to_string(path.size()));
  std::memcpy(address.sun_path, path.data(), path.size());
  // A file of another kind is no socket that somebody left behind.
  struct stat there = {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode))
    return Fail(Error::Code::kUsage, path + " exists and is not a socket");
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd.valid()) return SystemError("socket");
  unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return SystemError(path);
  chmod(path.c_str(), 0600);
  PrepareSocket(fd.get());
  if (listen(fd.get(), 1) != 0) return SystemError(path);
  listener_ = std::move(fd);
  return {};
}

Result<void> Server::ListenTcp() {
  wire::Address& at = options_.listen;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(at.port);
  const int error =
      getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return Fail(Error::Code::kUsage, wire::FormatAddress(at) + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  UniqueFd fd(socket(found->ai_family, found->ai_socktype, found->ai_protocol));
  if (!fd.valid()) return SystemError("socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  PrepareSocket(fd.get());
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.get(), 1) != 0)
    return SystemError(wire::FormatAddress(at));
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0) {
    if (name.ss_family == AF_INET)
      at.port = ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
    if (name.ss_family == AF_INET6)
      at.port = ntohs(reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port);
  }
  listener_ = std::move(fd);
  return {};
}

void Server::Log(const std::string& text) const {
  if (options_.log) options_.log(text);
}

UniqueFd Server::Accept() {
  while (!stop_) {
    // Engines go on without a client, as on a real card.
    Work work = Work::kIdle;
    if (gpu_.pending()) work = gpu_.Run();
    const int timeout = work == Work::kRunnable ? 0 : work == Work::kWaiting ? 1 : -1;
    pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {wake_read_.get(), POLLIN, 0}};
    if (poll(waiting, 2, timeout) <= 0) continue;
    if (!(waiting[0].revents & POLLIN)) continue;
    const int fd = accept(listener_.get(), nullptr, nullptr);
    if (fd >= 0) return UniqueFd(fd);
  }
  return UniqueFd();
}

Server::End Server::Run() {
  for (;;) {
    UniqueFd fd = Accept();
    if (!fd.valid()) return End::kStopped;
    abandoned_.reset();
    PrepareSocket(fd.get());
    if (!options_.listen.is_unix()) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    {
      const std::lock_guard lock(mutex_);
      client_ = fd.get();
      if (stop_) return End::kStopped;
    }
    Log("client connected");
    Link link(fd.get(), gpu_);
    const SessionEnd end = protocol_->Serve(link);
    {
      const std::lock_guard lock(mutex_);
      client_ = -1;
    }
    if (end == SessionEnd::kExit) {
      keep_file_ = true;
      return End::kExit;
    }
    Log("client disconnected");
    if (end == SessionEnd::kAbandoned) abandoned_ = std::move(fd);
    if (stop_) return End::kStopped;
    if (options_.once) return End::kOnce;
  }
}

void Server::Stop() {
  stop_ = true;
  const std::lock_guard lock(mutex_);
  if (client_ >= 0) shutdown(client_, SHUT_RDWR);
  const uint8_t byte = 0;
  [[maybe_unused]] const ssize_t woken = write(wake_write_.get(), &byte, 1);
}

}  // namespace tg::sim
