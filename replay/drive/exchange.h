// One request to a server and what it answers, within a time limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "replay/net/socket.h"
#include "schemas/wire/commands.h"

namespace tg::replay {

struct LiveReply {
  enum class End : uint8_t { kAnswered, kPosted, kSilent, kClosed, kInterrupted, kFailed };
  End end = End::kAnswered;
  wire::ReplyHeader reply;
  std::vector<uint8_t> body;  // or error text
  std::vector<UniqueFd> descriptors;
  uint64_t latency_ns = 0;
  std::string problem;  // for the ends that are none: what happened, "while waiting for ..."
};

// Header and payload go out as one message that begins at the header. A posted request is not
// waited for; so is one with `wait` false.
LiveReply Exchange(int fd, const wire::RequestHeader& request, std::span<const uint8_t> payload,
                   wire::Revision revision, std::chrono::milliseconds timeout, bool wait = true);

}  // namespace tg::replay
