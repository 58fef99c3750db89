// Turns what passes through a session into trace records. Called before the bytes go on.
//
// What of a payload or body is kept (`--bodies`): up to 4 KiB (of replies 16) always whole, for
// those are the registers, page-table entries, ring words and the discovery table. Of a larger one:
//   head  size, XXH3-64 or that it is all zero, and the first 256 bytes (default); SYSMEM_WRITE up
//         to 64 KiB whole: over TCP long stretches of a ring come in one piece
//   hash  the same without the first bytes
//   full  everything, in packets of at most 1 MiB: what replay needs
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/result.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/framer.h"

namespace tinygpu::trace {
class SessionEvent;
}

namespace tg::proxy {

enum class BodyPolicy : uint8_t { kFull, kHead, kHash };
Result<BodyPolicy> ParseBodyPolicy(std::string_view text);
std::string_view BodyPolicyName(BodyPolicy policy);

inline constexpr size_t kWholeBody = 4096;
// Of replies: AMD's discovery table (0x2800 bytes, one read) must be whole, all names rest on it.
inline constexpr size_t kWholeReply = 16 * 1024;
// Of SYSMEM_WRITE.
inline constexpr size_t kWholeSysmem = 64 * 1024;
inline constexpr size_t kHeadBytes = 256;

class Tap {
 public:
  Tap(trace::TraceWriter& writer, BodyPolicy policy);
  ~Tap();

  // What the proxy did to a request, see trace.proto; empty: nothing.
  struct Marks {
    std::string_view refused = {};
    std::string_view injected = {};
  };
  // kRequest and kPayloadChunk events. Returns the call's number.
  uint64_t Request(const wire::RequestEvent& event, uint64_t now) {
    return Request(event, now, Marks());
  }
  uint64_t Request(const wire::RequestEvent& event, uint64_t now, const Marks& marks);
  // The client went away inside a message: what came of it was not forwarded. `bytes` is as much as
  // is left of it, from its header on (fewer bytes than a header are recorded as raw ones).
  void TruncatedRequest(std::span<const uint8_t> bytes, wire::Revision revision, uint64_t now);
  // The client went away inside a payload that was being passed on in pieces.
  void TruncatedPayload(uint64_t now);

  // kReply and kBodyChunk events.
  void Reply(const wire::ReplyEvent& event, uint32_t descriptors, bool control_truncated,
             uint64_t now, std::string_view injected = {});
  // No more of the current reply will come.
  void TruncatedReply(uint64_t now);

  void Raw(bool from_server, std::span<const uint8_t> bytes, uint32_t descriptors,
           std::string_view reason, uint64_t now);
  void Event(const tinygpu::trace::SessionEvent& event, uint64_t now);

  trace::TraceWriter& writer() { return writer_; }

 private:
  // A payload or body that comes in pieces.
  struct Stream;

  bool Small(uint64_t size) const { return size <= kWholeBody; }
  trace::BodyRecord Whole(std::span<const uint8_t> bytes, size_t small = kWholeBody);
  std::span<const uint8_t> Head(std::span<const uint8_t> bytes) const;
  void StartStream(Stream& stream, uint64_t call, bool of_reply, uint64_t size,
                   std::span<const uint8_t> recorded, std::span<const uint8_t> bytes, uint64_t now);
  void Continue(Stream& stream, std::span<const uint8_t> bytes, uint64_t now);
  void EmitChunks(const Stream& stream, uint64_t offset, std::span<const uint8_t> bytes,
                  uint64_t now);
  void Finish(Stream& stream, uint64_t now);
  void EmitPendingReply(bool cut, uint64_t now);

  trace::TraceWriter& writer_;
  const BodyPolicy policy_;
  std::unique_ptr<Stream> payload_, body_;
  // A reply whose body is not all here yet is recorded when enough of it is.
  struct PendingReply {
    bool active = false;
    trace::ReplyRecord record;
    std::string injected;
    std::vector<uint8_t> bytes;
    size_t wanted = 0;
    uint64_t time = 0;
  };
  PendingReply pending_;
};

}  // namespace tg::proxy
