// One packet of a trace file, taken apart by hand. Untrusted input: any bytes may come.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schemas/trace/encode.h"
#include "schemas/trace/reader.h"

namespace tg::trace {

// Where a packet's bytes begin and end, from its first few bytes.
struct Frame {
  enum class State : uint8_t {
    kWhole,   // head and body are known
    kShort,   // more bytes are needed to tell
    kNoTag,   // does not begin with a packet's tag
    kAbsurd,  // a length that no packet has
  };
  State state = State::kShort;
  size_t head = 0;  // tag and length
  size_t body = 0;
  size_t total() const { return head + body; }
};
inline constexpr size_t kMaxFrameHead = 1 + 4;
Frame ReadFrame(std::span<const uint8_t> bytes);

// The fields of a packet; spans point into its bytes.
struct PacketView {
  enum Kind : uint32_t {  // field numbers of message Packet
    kOp = 2,
    kRequest = 7,
    kReply = 8,
    kRepeat = 10,
    kMarker = 13,
    kHeader = 16,
    kEnd = 17,
  };
  uint64_t dt = 0;
  uint64_t op = 0;
  uint64_t arg0 = 0;
  uint64_t latency = 0;
  uint64_t handle = 0;
  std::span<const uint8_t> data32;
  std::span<const uint8_t> data64;
  std::span<const uint8_t> latency_slot;  // empty unless it is two bytes long
  uint32_t kind = 0;                      // 0: nothing that this version knows
  std::span<const uint8_t> message;       // of `kind`, when it is a message
};

enum class Verdict : uint8_t { kGood, kMalformed, kBadChecksum };
std::string_view VerdictText(Verdict verdict);

// `body`: a frame's body. Checks structure and checksum; an answer that was being stored when the
// process died reads as no answer (latency 0).
Verdict ReadPacket(std::span<const uint8_t> body, PacketView& view);

struct ReplyFields {
  uint64_t calls_back = 0;
  uint64_t latency = 0;  // ticks
};

// False when malformed.
bool ParseRequest(std::span<const uint8_t> message, RequestView& view);
bool ParseReply(std::span<const uint8_t> message, ReplyView& view, ReplyFields& fields);
// The pattern, and the state that counts. False when malformed or when neither state holds.
bool ParseRepeat(std::span<const uint8_t> message, std::vector<RepeatedCall>& pattern,
                 RepeatState& state);
struct MarkerFields {
  std::string_view magic;
  uint64_t time = 0;
  uint64_t calls = 0;
};
bool ParseMarker(std::span<const uint8_t> message, MarkerFields& fields);

}  // namespace tg::trace
