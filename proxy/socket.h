// Sockets as the relay wants them: raw descriptors (libuv's pipes cannot carry arbitrary ones),
// non-blocking, closed on exec, no SIGPIPE.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "schemas/result.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

// A descriptor that is closed with its owner.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Non-blocking, close-on-exec.
void PrepareDescriptor(int fd);

// A data socket: 64 MiB buffers as both peers ask for (the kernel may give less), TCP_NODELAY, no
// SIGPIPE. Failures do not matter.
void TuneDataSocket(int fd, bool unix_socket);

// Starts connecting; `in_progress` when the result comes later (TCP) by writability and SO_ERROR.
// Fails with errno in `error`: ECONNREFUSED and ENOENT mean that nobody listens, EAGAIN (Unix,
// Linux) that its backlog is full.
struct ConnectAttempt {
  UniqueFd fd;
  bool in_progress = false;
  int error = 0;
  std::string problem;  // when the address itself was the trouble
};
ConnectAttempt StartConnect(const wire::Address& address);

// strerror, thread-safe.
std::string ErrnoText(int error);

}  // namespace tg::proxy
