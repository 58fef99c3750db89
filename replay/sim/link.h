// One client's connection as a plain blocking socket, which keeps the engines going while it waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "replay/sim/gpu.h"

namespace tg::sim {

// Close-on-exec, no SIGPIPE (macOS), and the 64 MiB buffers that the peers ask for.
void PrepareSocket(int fd);

class Link {
 public:
  // `fd` stays the caller's.
  Link(int fd, Gpu& gpu) : fd_(fd), gpu_(gpu) {}

  // ONE recv: what TinyGPU.app does for a header. 0 at the end of the stream, -1 on an error.
  ptrdiff_t RecvOnce(void* to, size_t size);
  // Until all is there; fewer bytes only at the end of the stream.
  size_t RecvAll(void* to, size_t size);
  // False once the client is gone.
  bool Send(std::span<const uint8_t> bytes);
  // One sendmsg with the descriptor attached to its first byte.
  bool SendWithDescriptor(std::span<const uint8_t> bytes, int descriptor);

 private:
  void RunEnginesUntilReadable();

  int fd_;
  Gpu& gpu_;
  std::chrono::steady_clock::time_point looked_{};
};

}  // namespace tg::sim
