// Blocking conversation over a Unix or TCP socket in which nothing waits for ever: each call has a
// deadline, and a signal (see Deadline::interrupt) ends it. One connection at a time needs no loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schemas/result.h"
#include "schemas/unique_fd.h"
#include "schemas/wire/address.h"

namespace tg::replay {

class Deadline {
 public:
  static Deadline Never() { return Deadline(); }
  static Deadline In(std::chrono::milliseconds time);
  // 0 means never.
  static Deadline InOrNever(std::chrono::milliseconds time);
  // Time left, at most `slice`; 0 when it has passed.
  std::chrono::milliseconds Left(std::chrono::milliseconds slice) const;
  bool passed() const;

  // Set by a signal handler: whatever waits gives up with kInterrupted.
  static std::atomic<bool> interrupt;

 private:
  bool never_ = true;
  std::chrono::steady_clock::time_point at_;
};

struct Transfer {
  enum class End : uint8_t { kDone, kEof, kTimeout, kInterrupted, kError };
  End end = End::kDone;
  size_t bytes = 0;     // moved before that
  std::string problem;  // kError: the system's words
  bool ok() const { return end == End::kDone; }
};

// Waits until `fd` can be read (data or end of stream) or written.
Transfer WaitReadable(int fd, const Deadline& deadline);
Transfer WaitWritable(int fd, const Deadline& deadline);
// One recv of up to bytes.size(): what came, as TinyGPU.app takes its headers. kEof: the peer
// closed.
Transfer ReceiveOnce(int fd, std::span<uint8_t> bytes, const Deadline& deadline);
// Exactly bytes.size() bytes. kEof: the peer closed first; `bytes` says how many came.
Transfer ReceiveAll(int fd, std::span<uint8_t> bytes, const Deadline& deadline);
// The same with the descriptors that came along, closed on exec.
Transfer ReceiveAll(int fd, std::span<uint8_t> bytes, std::vector<UniqueFd>& descriptors,
                    const Deadline& deadline);
// `head` and `tail` as one message; `descriptor` (unless -1) rides on its first byte.
Transfer Send(int fd, std::span<const uint8_t> head, std::span<const uint8_t> tail, int descriptor,
              const Deadline& deadline);

class Listener {
 public:
  // Binds and listens. An existing socket file is an error unless `replace`, which removes it.
  // The file is 0600 and removed again by the destructor.
  static Result<Listener> Open(const wire::Address& address, bool replace);
  Listener(Listener&& other) noexcept
      : fd_(std::move(other.fd_)), address_(std::exchange(other.address_, {})) {}
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  // With the port the system chose, where that was left to it.
  const wire::Address& address() const { return address_; }
  Transfer Accept(UniqueFd& client, const Deadline& deadline);

 private:
  Listener() = default;
  UniqueFd fd_;
  wire::Address address_;
};

Result<UniqueFd> Connect(const wire::Address& address, const Deadline& deadline);

}  // namespace tg::replay
