// The socket side of `rpcreplay serve`: TinyGPU.app's manners around a Responder.
//
// Over a Unix socket the header is taken by ONE receive and a short one ends the connection, as in
// TinyGPU.app; over TCP it is collected, as in serve.py. A reply, its body and its descriptor go
// out as one message. One client at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "replay/net/socket.h"
#include "replay/serve/answer.h"
#include "schemas/wire/commands.h"

namespace tg::replay {

struct ServerOptions {
  wire::Revision revision = wire::Revision::kR2;
  bool answer_divergence = false;  // with an error text, and go on; else hang up
  bool prove_replay = true;        // answer the proof of replay/proof.h, which touches nothing
  std::chrono::milliseconds silence{20};      // then see to shared memory
  std::chrono::milliseconds idle_timeout{0};  // between two messages; 0: for ever
  std::chrono::milliseconds accept_timeout{0};
};

// How a served connection ended.
struct Served {
  enum class Kind : uint8_t {
    kFinished,
    kDiverged,
    kLeftEarly,
    kLacking,  // the trace has nothing more to say
    kSilent,   // the client did nothing for too long
    kInterrupted,
    kFailed,  // the socket failed
  };
  Kind kind = Kind::kFinished;
  std::string text;
  uint64_t requests = 0;
  uint64_t divergences = 0;
};

// Serves one connected client to its end.
Served ServeClient(int fd, bool unix_socket, Responder& responder, const ServerOptions& options,
                   const std::function<void(const std::string&)>& note);

}  // namespace tg::replay
