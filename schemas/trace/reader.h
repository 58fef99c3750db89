// Reads a trace file, whole or torn, once or while it grows. Untrusted input: any bytes may come;
// no crash, no allocation beyond one packet (kMaxPacket), everything decodable is delivered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schemas/result.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/commands.h"

namespace tinygpu::trace {
class Packet;
class Header;
}  // namespace tinygpu::trace

namespace tg::trace {

// Body of a record; `data` may be only the first bytes of `size`.
struct BodyView {
  uint64_t size = 0;
  std::span<const uint8_t> data;
  std::optional<uint64_t> xxh3;
  bool all_zero = false;
  bool streamed = false;
  bool whole() const { return data.size() == size; }
};

struct RequestView {
  wire::RequestHeader header;
  BodyView payload;
  bool truncated = false;
  uint64_t received = 0;
  std::string_view injected;
  std::string_view refused;
};

// Begins Request.injected and Reply.injected of what the proxy itself asked (--autopsy): the answer
// is the device's, the question was not the client's. Any other Reply.injected says that the answer
// is not the device's (--inject, a refusal by the guard).
inline constexpr std::string_view kAutopsyMark = "autopsy";

struct ReplyView {
  wire::ReplyHeader reply;
  BodyView body;  // or error text
  uint32_t descriptors = 0;
  bool control_truncated = false;
  uint64_t latency_ns = 0;
  std::string_view injected;
};

struct RepeatedCall {
  RequestView request;
  std::optional<ReplyView> reply;
};

// One thing that happened. Views are valid until the next call of Next().
struct Record {
  enum class Kind : uint8_t {
    kRequest,  // request
    kReply,    // reply; `call` is the call it answers (an in-place answer follows its request)
    kRepeat,   // pattern went on for `issued` more calls: numbers call .. call + issued - 1
    kPacket,   // any other packet, in `packet` (chunk, region, sysmem, event, loss, raw, end, ...)
  };
  Kind kind = Kind::kPacket;
  uint64_t call = 0;          // kRequest, kReply, kRepeat: as above; kPacket: newest call so far
  uint64_t time_ns = 0;       // since the trace's start
  uint64_t offset = 0;        // of the packet in the file
  bool after_damage = false;  // call and time_ns are lower bounds: a packet before was unreadable

  RequestView request;
  ReplyView reply;

  std::span<const RepeatedCall> pattern;
  uint64_t issued = 0;
  uint64_t answered = 0;
  uint64_t last_time_ns = 0;  // time_ns is the first call's
  uint64_t min_latency_ns = 0;
  uint64_t max_latency_ns = 0;

  const tinygpu::trace::Packet* packet = nullptr;
};

// Bytes that could not be read as packets.
struct SkippedRange {
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string reason;
};

enum class EndState : uint8_t {
  kOpen,       // not there yet
  kClean,      // an End packet closed the file
  kNotClosed,  // whole packets up to here, then nothing (or the preallocated zeros): killed, or
               // still being written
  kTruncated,  // the file stops inside a packet
  kGarbage,    // bytes that are no packet follow the last good one
};
std::string_view EndStateText(EndState state);

class TraceReader {
 public:
  // Fails only if the file cannot be opened or does not begin as a trace (the message says what it
  // looks like instead). A damaged header packet is reported as skipped, not as failure, when
  // packets can still be found behind it.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& path);
  // The same over bytes in memory (tests, fuzzers).
  static Result<std::unique_ptr<TraceReader>> FromBytes(std::vector<uint8_t> bytes);
  ~TraceReader();

  // The next record, or false at the end (see end_state). With `follow` set, false may also mean
  // "nothing new yet": call again later. A packet that may still be answered in place is then
  // delivered only when another packet stands behind it.
  bool Next(Record& record);
  void set_follow(bool follow);

  const tinygpu::trace::Header* header() const;  // nullptr if it was unreadable
  EndState end_state() const;
  uint64_t offset() const;  // first byte not consumed
  uint64_t file_size() const;
  uint64_t packets() const;                          // good ones delivered so far
  uint64_t calls() const;                            // newest call number
  const std::vector<SkippedRange>& skipped() const;  // at most 1000 kept, then merged
  // Bytes up to here are whole packets in sequence: where `repair` cuts.
  uint64_t good_end() const;

 private:
  class Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::trace
