// Where a TinyGPU server is: the ADDR of every command line here. Text in, fields out; no socket.
//
//   unix:/path/to.sock   a Unix socket (TinyGPU.app's flavour)
//   /path/to.sock        the same; so is any text without a known prefix
//   tcp:host:port        serve.py's flavour; tcp:host means port 6667, tcp:[::1]:6667 is IPv6
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "schemas/result.h"

namespace tg::wire {

// Where serve.py listens, and where tinygrad's REMOTE=host connects.
inline constexpr uint16_t kDefaultTcpPort = 6667;

struct Address {
  enum class Kind : uint8_t { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  std::string path;   // kUnix
  std::string host;   // kTcp: a name or a number, without brackets
  uint16_t port = 0;  // kTcp; 0 lets a listener have any free port
  bool is_unix() const { return kind == Kind::kUnix; }
  friend bool operator==(const Address&, const Address&) = default;
};

// The longest path (bytes, without the closing NUL) that this system's sockaddr_un holds: 103 on
// macOS, 107 on Linux. The system calls would cut a longer one silently.
size_t UnixPathLimit();

// Error::kUsage with a sentence that says what to write instead.
Result<Address> ParseAddress(std::string_view text);

// "unix:/path" or "tcp:host:port"; ParseAddress reads it back.
std::string FormatAddress(const Address& address);

}  // namespace tg::wire
