// How a client finds out that nothing real stands behind a server.
//
// `rpcreplay drive` can reset or wedge a card. Before it sends anything else it asks, with the one
// request that is harmless everywhere: PING with this word as arg0. TinyGPU.app answers every PING
// with status 1, serve.py answers 0/0/0 and looks at no argument; only `rpcreplay sim` and
// `rpcreplay serve` echo the word in resp0 (and its complement in resp1). It passes through a proxy
// like any other request. So the proof is the peer's own word, not a guess by its name or address.
#pragma once

#include <cstdint>

#include "schemas/wire/commands.h"
#include "schemas/wire/simulator.h"

namespace tg::replay {

inline constexpr uint64_t kProofWord = wire::kSimulatorWord;

inline bool IsProofRequest(const wire::RequestHeader& request) {
  return request.command == static_cast<uint8_t>(wire::Command::kPing) &&
         request.arg0 == kProofWord;
}
inline wire::RequestHeader ProofRequest() {
  wire::RequestHeader request;
  request.command = static_cast<uint8_t>(wire::Command::kPing);
  request.arg0 = kProofWord;
  return request;
}
inline constexpr wire::ReplyHeader kProofReply{0, kProofWord, ~kProofWord};

}  // namespace tg::replay
