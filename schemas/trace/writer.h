// Writes a trace file that survives the death of its process at any moment.
//
// Packets are appended into memory-mapped, preallocated segments of the file: no system call per
// record, and what was stored is in the page cache, so kill -9 loses nothing. A packet's body is
// stored first and its tag byte last (release), so a reader that follows the growing file never
// sees half a packet. See trace.proto for the format and for what changes in place.
//
// Never disturbs traffic: no call fails and none waits for the disk (except Sync). What cannot be
// recorded is counted by cause, and a Loss packet is written when recording works again.
//
// Thread-safe: packets from a capture thread may come between those of the relay thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/result.h"
#include "schemas/wire/commands.h"

namespace tinygpu::trace {
class Packet;
class Header;
class End;
}  // namespace tinygpu::trace

namespace tg::trace {

inline constexpr uint32_t kTickNs = 100;
inline constexpr size_t kMaxChunk = 1u << 20;                // bytes of data in one packet
inline constexpr size_t kMaxPacket = kMaxChunk + 64 * 1024;  // a longer one is damage

// A payload or body as it goes into the file; see message Body.
struct BodyRecord {
  uint64_t size = 0;
  std::span<const uint8_t> data;
  std::optional<uint64_t> xxh3;
  bool all_zero = false;
  bool streamed = false;
};

struct RequestRecord {
  wire::RequestHeader header;
  BodyRecord payload;
  bool truncated = false;
  uint64_t received = 0;
  std::string_view injected;
  std::string_view refused;
};

struct ReplyRecord {
  uint64_t call = 0;  // as Request() returned
  wire::ReplyHeader reply;
  BodyRecord body;
  uint32_t descriptors = 0;
  bool control_truncated = false;
  std::string_view injected;
};

struct LossTotal {
  int cause = 0;  // Loss::Cause
  uint64_t calls = 0;
  uint64_t packets = 0;
  uint64_t bytes = 0;
};

// Where the bytes go. Tests replace it to run out of space or to cut the power.
class Sink {
 public:
  virtual ~Sink() = default;
  // Makes bytes [offset, offset + size) of the file exist on the medium's books and maps them for
  // writing, zero-filled. Called from the writer's own background thread; segments come in order,
  // and the one that failed is tried again later. Error::Code::kNoSpace: the disk is full.
  virtual Result<std::span<uint8_t>> Map(uint64_t offset, size_t size) = 0;
  virtual void Unmap(std::span<uint8_t> segment) = 0;
  // Forces to the disk what was stored in `dirty` (part of a mapped segment) and in the segments
  // unmapped before.
  virtual Result<void> Sync(std::span<uint8_t> dirty) = 0;
  // Final size of the file, on clean close.
  virtual Result<void> Truncate(uint64_t size) = 0;
};
// A new file with mode 0600; an existing one is replaced only if `overwrite`.
Result<std::unique_ptr<Sink>> OpenFileSink(const std::string& path, bool overwrite);

struct WriterOptions {
  // Bytes mapped at a time, at least kMaxPacket; two segments are resident, a third for a moment.
  size_t segment_size = 8u << 20;
  bool fold = true;            // Repeat packets for runs of equal calls
  uint64_t start_mono_ns = 0;  // the clock's zero: times passed in are >= this
  // How long a record waits for a segment before it is lost. Making one takes milliseconds; it
  // takes longer only where the thread that does it gets no processor, and then a short wait, once,
  // is less harm than a hole in the trace. A disk that has failed or is full is not waited for.
  uint32_t patience_ms = 250;
};

class TraceWriter {
 public:
  // Writes `header` (magic, version, marker and tick are filled in here) and the first marker.
  static Result<std::unique_ptr<TraceWriter>> Create(std::unique_ptr<Sink> sink,
                                                     const WriterOptions& options,
                                                     tinygpu::trace::Header header);
  ~TraceWriter();  // as after a kill: nothing is truncated or closed
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The record is in the mapping when this returns. Gives the call's number, from 1, also when the
  // record was lost. `now_ns` on the monotonic clock.
  uint64_t Request(const RequestRecord& record, uint64_t now_ns);
  void Reply(const ReplyRecord& record, uint64_t now_ns);
  // Any other packet; dt and crc32c are filled in. At most kMaxPacket when serialised.
  void Append(tinygpu::trace::Packet& packet, uint64_t now_ns);

  // Forces everything written so far to the disk (durability `machine`).
  Result<void> Sync();

  uint64_t calls() const;
  uint64_t bytes_written() const;  // content so far; also the size after Close()
  bool paused() const;             // recording is suspended (disk full, I/O error)
  std::vector<LossTotal> losses() const;

  // Writes `end` and truncates the file to its content. The writer takes nothing afterwards.
  Result<void> Close(tinygpu::trace::End end, uint64_t now_ns);

 private:
  class Impl;
  explicit TraceWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::trace
