#include "proxy/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace tg::proxy {

std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

void PrepareDescriptor(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void TuneDataSocket(int fd, bool unix_socket) {
  // Darwin refuses sizes over its limit instead of giving less, hence the smaller second choice.
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    for (const int size : {64 << 20, 4 << 20, 1 << 20}) {
      if (::setsockopt(fd, SOL_SOCKET, option, &size, sizeof size) == 0) break;
    }
  }
  const int on = 1;
  if (!unix_socket) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

namespace {

void Connect(ConnectAttempt& attempt, int family, const sockaddr* address, socklen_t size) {
  attempt.fd.reset(::socket(family, SOCK_STREAM, 0));
  if (!attempt.fd.valid()) {
    attempt.error = errno;
    return;
  }
  PrepareDescriptor(attempt.fd.get());
  TuneDataSocket(attempt.fd.get(), family == AF_UNIX);
  attempt.error = 0;
  if (::connect(attempt.fd.get(), address, size) == 0) return;
  if (errno == EINPROGRESS || errno == EINTR) {
    attempt.in_progress = true;
    return;
  }
  attempt.error = errno;
  attempt.fd.reset();
}

}  // namespace

ConnectAttempt StartConnect(const wire::Address& address) {
  ConnectAttempt attempt;
  if (address.is_unix()) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    if (address.path.size() >= sizeof un.sun_path) {
      attempt.error = ENAMETOOLONG;
      return attempt;
    }
    std::memcpy(un.sun_path, address.path.data(), address.path.size());
    Connect(attempt, AF_UNIX, reinterpret_cast<const sockaddr*>(&un), sizeof un);
    return attempt;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int rc = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); rc != 0) {
    attempt.error = EHOSTUNREACH;
    attempt.problem = "cannot resolve '" + address.host + "': " + ::gai_strerror(rc);
    return attempt;
  }
  attempt.error = EHOSTUNREACH;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Connect(attempt, a->ai_family, a->ai_addr, a->ai_addrlen);
    if (attempt.fd.valid()) break;
  }
  ::freeaddrinfo(found);
  return attempt;
}

}  // namespace tg::proxy
