#include "replay/net/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace tg::replay {
namespace {

using std::chrono::milliseconds;

// How soon an interrupt is noticed that came just before a wait.
constexpr milliseconds kSlice{250};
constexpr size_t kMaxDescriptors = 16;
constexpr int kSocketBuffer = 64 << 20;  // as both peers ask for

std::string Reason(int error) {
  return std::generic_category().message(error);
}

Transfer Failed(int error) {
  Transfer transfer;
  transfer.end =
      error == ECONNRESET || error == EPIPE ? Transfer::End::kEof : Transfer::End::kError;
  transfer.problem = Reason(error);
  return transfer;
}

Transfer Wait(int fd, short events, const Deadline& deadline) {
  Transfer transfer;
  for (;;) {
    if (Deadline::interrupt.load(std::memory_order_relaxed)) {
      transfer.end = Transfer::End::kInterrupted;
      return transfer;
    }
    pollfd poller{fd, events, 0};
    const int got = poll(&poller, 1, static_cast<int>(deadline.Left(kSlice).count()));
    if (got > 0) return transfer;
    if (got < 0 && errno != EINTR) return Failed(errno);
    if (got == 0 && deadline.passed()) {
      transfer.end = Transfer::End::kTimeout;
      return transfer;
    }
  }
}

void Prepare(int fd, bool tcp) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  for (const int option : {SO_SNDBUF, SO_RCVBUF})
    setsockopt(fd, SOL_SOCKET, option, &kSocketBuffer, sizeof kSocketBuffer);
  const int on = 1;
  if (tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), std::min(path.size(), wire::UnixPathLimit()));
  return name;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> Resolve(const wire::Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0)
    return Fail(Error::Code::kNotFound, wire::FormatAddress(address) + ": " + gai_strerror(error));
  return Addresses(list);
}

tl::unexpected<Error> Cannot(std::string_view what, const wire::Address& address, int error) {
  return Fail(
      error == ENOENT || error == ECONNREFUSED ? Error::Code::kNotFound : Error::Code::kIo,
      "cannot " + std::string(what) + " " + wire::FormatAddress(address) + ": " + Reason(error));
}

void TakeDescriptors(msghdr& message, std::vector<UniqueFd>& descriptors) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

std::atomic<bool> Deadline::interrupt{false};

Deadline Deadline::In(milliseconds time) {
  Deadline deadline;
  deadline.never_ = false;
  deadline.at_ = std::chrono::steady_clock::now() + time;
  return deadline;
}

Deadline Deadline::InOrNever(milliseconds time) {
  return time.count() == 0 ? Never() : In(time);
}

milliseconds Deadline::Left(milliseconds slice) const {
  if (never_) return slice;
  const auto left = std::chrono::ceil<milliseconds>(at_ - std::chrono::steady_clock::now());
  return std::clamp(left, milliseconds(0), slice);
}

bool Deadline::passed() const {
  return !never_ && std::chrono::steady_clock::now() >= at_;
}

Transfer WaitReadable(int fd, const Deadline& deadline) {
  return Wait(fd, POLLIN, deadline);
}
Transfer WaitWritable(int fd, const Deadline& deadline) {
  return Wait(fd, POLLOUT, deadline);
}

Transfer ReceiveOnce(int fd, std::span<uint8_t> bytes, const Deadline& deadline) {
  for (;;) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      Transfer transfer;
      transfer.bytes = static_cast<size_t>(got);
      return transfer;
    }
    if (got == 0) {
      Transfer transfer;
      transfer.end = Transfer::End::kEof;
      return transfer;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Failed(errno);
    Transfer wait = WaitReadable(fd, deadline);
    if (!wait.ok()) return wait;
  }
}

Transfer ReceiveAll(int fd, std::span<uint8_t> bytes, const Deadline& deadline) {
  size_t done = 0;
  while (done < bytes.size()) {
    Transfer part = ReceiveOnce(fd, bytes.subspan(done), deadline);
    done += part.bytes;
    if (!part.ok()) {
      part.bytes = done;
      return part;
    }
  }
  Transfer transfer;
  transfer.bytes = done;
  return transfer;
}

Transfer ReceiveAll(int fd, std::span<uint8_t> bytes, std::vector<UniqueFd>& descriptors,
                    const Deadline& deadline) {
  Transfer transfer;
  while (transfer.bytes < bytes.size()) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
    iovec piece{bytes.data() + transfer.bytes, bytes.size() - transfer.bytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(fd, &message, 0);
    if (got > 0) {
      transfer.bytes += static_cast<size_t>(got);
      TakeDescriptors(message, descriptors);
      continue;
    }
    if (got == 0) {
      transfer.end = Transfer::End::kEof;
      return transfer;
    }
    if (errno == EINTR) continue;
    Transfer stop =
        errno == EAGAIN || errno == EWOULDBLOCK ? WaitReadable(fd, deadline) : Failed(errno);
    if (!stop.ok()) {
      stop.bytes = transfer.bytes;
      return stop;
    }
  }
  return transfer;
}

Transfer Send(int fd, std::span<const uint8_t> head, std::span<const uint8_t> tail, int descriptor,
              const Deadline& deadline) {
  Transfer transfer;
  const size_t size = head.size() + tail.size();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (transfer.bytes < size) {
    iovec pieces[2];
    msghdr message{};
    message.msg_iov = pieces;
    size_t skip = transfer.bytes;
    for (std::span<const uint8_t> part : {head, tail}) {
      const size_t gone = std::min(skip, part.size());
      skip -= gone;
      part = part.subspan(gone);
      if (!part.empty())
        pieces[message.msg_iovlen++] = {const_cast<uint8_t*>(part.data()), part.size()};
    }
    if (descriptor >= 0 && transfer.bytes == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof descriptor);
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      transfer.bytes += static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    Transfer stop =
        errno == EAGAIN || errno == EWOULDBLOCK ? WaitWritable(fd, deadline) : Failed(errno);
    if (!stop.ok()) {
      stop.bytes = transfer.bytes;
      return stop;
    }
  }
  return transfer;
}

Result<Listener> Listener::Open(const wire::Address& address, bool replace) {
  Listener listener;
  if (address.is_unix()) {
    struct stat status;
    if (lstat(address.path.c_str(), &status) == 0) {
      if (!S_ISSOCK(status.st_mode))
        return Fail(Error::Code::kUsage, address.path + " exists and is no socket: choose another");
      if (!replace)
        return Fail(Error::Code::kUsage,
                    address.path +
                        " exists already: a server may be listening there. If none is, "
                        "remove the file or pass --replace");
      unlink(address.path.c_str());
    }
    listener.fd_.reset(socket(AF_UNIX, SOCK_STREAM, 0));
    if (!listener.fd_.valid()) return Cannot("listen on", address, errno);
    Prepare(listener.fd_.get(), false);
    const sockaddr_un name = UnixName(address.path);
    const mode_t mask = umask(0177);
    const int bound =
        bind(listener.fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name);
    const int error = errno;
    umask(mask);
    if (bound != 0) return Cannot("listen on", address, error);
    listener.address_ = address;
  } else {
    Result<Addresses> list = Resolve(address, AI_PASSIVE);
    if (!list) return tl::unexpected(list.error());
    int error = 0;
    for (const addrinfo* at = list->get(); at && listener.address_.host.empty(); at = at->ai_next) {
      listener.fd_.reset(socket(at->ai_family, at->ai_socktype, at->ai_protocol));
      if (!listener.fd_.valid()) {
        error = errno;
        continue;
      }
      const int on = 1;
      setsockopt(listener.fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      Prepare(listener.fd_.get(), true);
      if (bind(listener.fd_.get(), at->ai_addr, at->ai_addrlen) == 0)
        listener.address_ = address;
      else
        error = errno;
    }
    if (listener.address_.host.empty()) return Cannot("listen on", address, error);
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (getsockname(listener.fd_.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0) {
      uint16_t port = 0;
      if (name.ss_family == AF_INET) port = reinterpret_cast<sockaddr_in*>(&name)->sin_port;
      if (name.ss_family == AF_INET6) port = reinterpret_cast<sockaddr_in6*>(&name)->sin6_port;
      if (port != 0) listener.address_.port = ntohs(port);
    }
  }
  if (listen(listener.fd_.get(), 16) != 0) return Cannot("listen on", address, errno);
  return listener;
}

Listener::~Listener() {
  if (fd_.valid() && address_.is_unix() && !address_.path.empty()) unlink(address_.path.c_str());
}

Transfer Listener::Accept(UniqueFd& client, const Deadline& deadline) {
  for (;;) {
    client.reset(accept(fd_.get(), nullptr, nullptr));
    if (client.valid()) {
      Prepare(client.get(), !address_.is_unix());
      return Transfer();
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Failed(errno);
    Transfer wait = WaitReadable(fd_.get(), deadline);
    if (!wait.ok()) return wait;
  }
}

namespace {

// 0 or errno. A connect that cannot finish at once goes on in the background.
int ConnectTo(int fd, const sockaddr* name, socklen_t size, const Deadline& deadline) {
  for (;;) {
    if (connect(fd, name, size) == 0) return 0;
    if (errno == EAGAIN) {  // Linux, Unix socket: the listener's backlog is full
      if (deadline.passed()) return ETIMEDOUT;
      if (Deadline::interrupt.load(std::memory_order_relaxed)) return EINTR;
      poll(nullptr, 0, 20);
      continue;
    }
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    const Transfer wait = WaitWritable(fd, deadline);
    if (wait.end == Transfer::End::kTimeout) return ETIMEDOUT;
    if (!wait.ok()) return EINTR;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }
}

}  // namespace

Result<UniqueFd> Connect(const wire::Address& address, const Deadline& deadline) {
  if (address.is_unix()) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    if (!fd.valid()) return Cannot("connect to", address, errno);
    Prepare(fd.get(), false);
    const sockaddr_un name = UnixName(address.path);
    const int error =
        ConnectTo(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name, deadline);
    if (error != 0) return Cannot("connect to", address, error);
    return fd;
  }
  Result<Addresses> list = Resolve(address, 0);
  if (!list) return tl::unexpected(list.error());
  int error = ECONNREFUSED;
  for (const addrinfo* at = list->get(); at; at = at->ai_next) {
    UniqueFd fd(socket(at->ai_family, at->ai_socktype, at->ai_protocol));
    if (!fd.valid()) {
      error = errno;
      continue;
    }
    Prepare(fd.get(), true);
    error = ConnectTo(fd.get(), at->ai_addr, at->ai_addrlen, deadline);
    if (error == 0) return fd;
  }
  return Cannot("connect to", address, error);
}

}  // namespace tg::replay
