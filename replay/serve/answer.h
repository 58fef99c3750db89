// What a server that plays a recording does with one request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schemas/wire/commands.h"

namespace tg::replay {

// A request as it came. The payload is kept up to TinyGPU.app's own limit (64 MiB).
struct Received {
  wire::RequestHeader request;
  uint64_t payload_size = 0;         // bytes that followed the header
  std::span<const uint8_t> payload;  // all of them, or empty when there were too many
  std::optional<uint64_t> xxh3;      // of all of them; always there when `payload` is not
  bool all_zero = false;             // likewise
};

struct Answer {
  enum class Kind : uint8_t {
    kReply,     // send it
    kPosted,    // nothing to send, the request has no answer
    kSilent,    // the recorded server never answered this one
    kDiverged,  // not what was recorded; `problem` says how
    kOver,      // nothing is recorded any more; `problem` says why
  };
  Kind kind = Kind::kPosted;
  wire::ReplyHeader reply;
  std::span<const uint8_t> body;  // valid until the next request
  uint64_t zeros = 0;             // this many zero bytes instead of `body`
  int descriptor = -1;
  std::string problem;
};

// Where the player got to when the client left, or when there was nothing left to say.
struct Verdict {
  enum class Kind : uint8_t {
    kFinished,  // all that was recorded of this connection was played
    kLeftEarly,
    kDiverged,
    kLacking,  // the trace itself ends or breaks off here
  };
  Kind kind = Kind::kFinished;
  std::string text;
};

// One that answers: from the recorded calls in order (Player) or from a shadow of the device
// (ShadowServer).
class Responder {
 public:
  virtual ~Responder() = default;
  // A client has connected. False when the recording has no further connection.
  virtual bool Connect() = 0;
  // Changes to shared memory are made before this returns.
  virtual Answer OnRequest(const Received& received) = 0;
  // The client has been silent for a while, perhaps waiting for something in shared memory. True
  // if something was done about it.
  virtual bool OnSilence() = 0;
  // True where the recorded server closed the connection.
  virtual bool HangsUp() = 0;
  virtual Verdict Disconnect() = 0;
  // The last things that happened, oldest first, one line each.
  virtual std::vector<std::string> History() const = 0;
  virtual uint64_t played() const = 0;
};

}  // namespace tg::replay
