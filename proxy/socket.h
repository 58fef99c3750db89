// Sockets as the relay wants them: raw descriptors (libuv's pipes cannot carry arbitrary ones),
// non-blocking, closed on exec, no SIGPIPE.
#pragma once

#include <cstdint>
#include <string>

#include "schemas/result.h"
#include "schemas/unique_fd.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

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
