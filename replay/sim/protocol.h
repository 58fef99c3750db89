// What the two flavours of server have in common: a request comes in, the card answers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "replay/sim/gpu.h"
#include "replay/sim/link.h"
#include "schemas/wire/commands.h"

namespace tg::sim {

struct ServerStats {
  std::array<uint64_t, wire::kCommandCount> requests{};
  uint64_t unknown = 0;         // command bytes that mean nothing
  uint64_t refused = 0;         // answered with status 1
  uint64_t writes_dropped = 0;  // posted writes out of range or refused
  uint64_t short_headers = 0;   // a header that came in pieces: hung up
  // Requests that make the real server read or write out of bounds: BAR 256 and up, ranges that
  // wrap, payloads beyond its buffer.
  uint64_t poison = 0;
  uint64_t clients = 0;
};

enum class SessionEnd : uint8_t {
  kDisconnected,
  kAbandoned,  // served no more, but the socket stays open (serve.py after a failed write)
  kExit,       // the server process is to end at once (--hang exit)
};

class Protocol {
 public:
  virtual ~Protocol() = default;
  // Serves one client until it goes.
  virtual SessionEnd Serve(Link& link) = 0;
  const ServerStats& stats() const { return stats_; }

 protected:
  explicit Protocol(Gpu& gpu) : gpu_(gpu) {}

  // Counts the request and applies the rules of --hang that work on requests.
  struct Verdict {
    bool exit = false;
    const HangRule* refuse = nullptr;
  };
  Verdict Admit(const wire::RequestHeader& request);
  bool Reply(Link& link, const wire::ReplyHeader& reply);
  // Status 1 with a text, which may be empty.
  bool Refuse(Link& link, std::string_view text);

  Gpu& gpu_;
  ServerStats stats_;
};

}  // namespace tg::sim
