// A recorded session as a list of steps to play again: calls with their answers, what the shared
// memory held, connections coming and going.
//
// Why not the trace's records: an answer, its body's chunks and the contents of a region come in
// records of their own, later; and one Repeat record stands for millions of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schemas/wire/commands.h"

namespace tg::replay {

// A payload or body, as much of it as the trace kept.
struct Bytes {
  uint64_t size = 0;          // announced
  std::vector<uint8_t> data;  // the first bytes; all of them when as long as `size`
  std::optional<uint64_t> xxh3;
  bool all_zero = false;  // `data` may be empty then
  // The sender stopped after so many bytes, although it had announced `size`. `xxh3` is of those.
  std::optional<uint64_t> cut_at;
  bool cut_zero = false;  // and those were zeros; `data` may be empty then
  bool known() const { return all_zero || data.size() == size; }
  // What came of it is here.
  bool came_known() const { return cut_at ? cut_zero || data.size() >= *cut_at : known(); }
};

struct Call {
  uint64_t number = 0;  // "sequence number"
  uint64_t time_ns = 0;
  uint64_t latency_ns = 0;
  wire::RequestHeader request;
  Bytes payload;
  bool expects_reply = false;
  bool answered = false;
  wire::ReplyHeader reply;
  Bytes body;  // or error text
  uint32_t descriptors = 0;
  bool truncated = false;  // the client went away inside this message
  // The proxy refused it, changed it, or made it up: why. Not something the device did.
  std::string refused;
  std::string injected;
  // A question of the proxy's own: no client asked it.
  bool autopsy() const { return injected.starts_with("autopsy"); }
  // This write repeats, within a few calls, what was last written at its place.
  bool rewrite = false;
};

// `pattern` goes on from its start for `issued` more calls, numbers first .. first + issued - 1.
struct Run {
  std::vector<Call> pattern;  // 1 to 8; number is that of the run's first round
  uint64_t first = 0;
  uint64_t issued = 0;
  uint64_t answered = 0;  // of those that expect an answer, from the first on
  uint64_t last_time_ns = 0;
};

enum class Why : uint8_t { kUnknown, kMap, kDoorbell, kStall, kSignal, kEnd };  // SysmemData.Why

// Contents of shared memory at that moment.
struct Memory {
  uint32_t region = 0;
  uint64_t offset = 0;
  std::vector<uint8_t> data;
  uint64_t zeros = 0;  // this many zero bytes instead of data
  Why why = Why::kUnknown;
  bool torn = false;
  uint64_t size() const { return zeros != 0 ? zeros : data.size(); }
};

struct DmaRange {
  uint64_t address = 0;
  uint64_t length = 0;
  friend bool operator==(const DmaRange&, const DmaRange&) = default;
};

struct Region {
  uint32_t index = 0;
  uint64_t asked = 0;
  uint64_t granted = 0;
  std::vector<DmaRange> ranges;
};

struct Step {
  enum class Kind : uint8_t {
    kCall,
    kRun,
    kMemory,
    kRegion,
    kConnect,     // `connection` begins
    kDisconnect,  // it ends; `text`: who closed first
    kGap,         // something is missing or unreadable here; `text` says what
    kRaw,         // the stream lost its framing; nothing behind can be played
  };
  Kind kind = Kind::kCall;
  uint64_t number = 0;  // kCall, kRun: first; else the newest call before
  Call call;
  std::shared_ptr<const Run> run;
  Memory memory;
  Region region;
  uint32_t connection = 0;
  std::string text;
  bool breaks = false;  // kGap: calls may be missing, not only contents of memory
  bool done = false;    // played ahead of its turn
  uint8_t waiting = 0;  // of Script: what is still to come for this call
};

// Equal for two calls that ask for the same thing in the same words (payload aside).
uint64_t RequestKey(const wire::RequestHeader& request);

}  // namespace tg::replay
