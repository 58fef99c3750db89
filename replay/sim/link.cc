#include "replay/sim/link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "schemas/wire/commands.h"

namespace tg::sim {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int kNoSignal = MSG_NOSIGNAL;
#else
constexpr int kNoSignal = 0;
#endif

// How often an engine that waits for a value in memory looks again while requests keep coming.
constexpr auto kLookEvery = std::chrono::microseconds(50);
constexpr int kLookIdleMs = 1;

}  // namespace

void PrepareSocket(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  // The system may give less, or refuse: no reason to fail.
  const int size = static_cast<int>(wire::kAppBulkLimit);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

void Link::RunEnginesUntilReadable() {
  while (gpu_.pending()) {
    const auto now = std::chrono::steady_clock::now();
    Work work = Work::kWaiting;
    if (now - looked_ >= kLookEvery) {
      work = gpu_.Run();
      looked_ = now;
    }
    pollfd waiting = {fd_, POLLIN, 0};
    if (poll(&waiting, 1, work == Work::kRunnable ? 0 : kLookIdleMs) != 0) return;
  }
}

ptrdiff_t Link::RecvOnce(void* to, size_t size) {
  RunEnginesUntilReadable();
  for (;;) {
    const ssize_t got = recv(fd_, to, size, 0);
    if (got >= 0 || errno != EINTR) return got;
  }
}

size_t Link::RecvAll(void* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ptrdiff_t got = RecvOnce(static_cast<uint8_t*>(to) + done, size - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

bool Link::Send(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), kNoSignal);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool Link::SendWithDescriptor(std::span<const uint8_t> bytes, int descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec piece = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  for (;;) {
    const ssize_t sent = sendmsg(fd_, &message, kNoSignal);
    if (sent < 0 && errno == EINTR) continue;
    return sent > 0 && Send(bytes.subspan(static_cast<size_t>(sent)));
  }
}

}  // namespace tg::sim
