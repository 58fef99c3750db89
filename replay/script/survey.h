// One pass over a trace before it is played: what it holds, and what it lacks for playing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/script/script.h"

namespace tg::replay {

// The first of several calls with the same lack.
struct Lack {
  uint64_t count = 0;
  uint64_t first = 0;   // call number
  std::string example;  // the call, formatted
};

struct SurveyConnection {
  uint32_t id = 0;  // as the trace counts them; 0: no connect event was recorded
  std::string transport;
  std::string closed_first;  // empty: not seen to end
  uint64_t first_call = 0;
  uint64_t calls = 0;
};

struct Survey {
  uint64_t calls = 0;
  uint64_t unanswered = 0;
  std::vector<SurveyConnection> connections;  // at most kMaxConnections are listed
  uint64_t connection_count = 0;
  Lack bodies;    // replies whose body is not whole: cannot be served
  Lack payloads;  // requests whose payload is not whole: cannot be sent
  Lack unmapped;  // MAP_SYSMEM_FD answered, but the region's addresses are not in the trace
  std::vector<std::string> gaps;  // with call numbers; at most kMaxGaps
  uint64_t gap_count = 0;
  uint64_t first_break = 0;  // calls may be missing behind this one (0: none are)
  bool breaks = false;
  std::optional<uint64_t> raw_after;  // the stream lost its framing behind this call
  std::array<uint64_t, 6> memory{};   // copies of shared memory, by Why
  uint64_t regions = 0;
  std::string body_policy;
  bool whole_file = true;  // closed cleanly
  std::string end_text;
  wire::Revision revision = wire::Revision::kUndecided;
  // Small reads that occur, and how often (up to 255): what occurs once is no poll.
  std::unordered_map<uint64_t, uint8_t> reads;

  bool Polled(const wire::RequestHeader& request) const;
};

inline constexpr size_t kMaxConnections = 64;
inline constexpr size_t kMaxGaps = 16;

// Reads `script` to its end.
Survey Examine(Script& script);

}  // namespace tg::replay
