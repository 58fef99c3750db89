// Cuts the two byte streams of a connection into messages. Sans-I/O: bytes in, events out; no
// clock, no socket, no allocation per event. Shared by the proxy, the replayer, tests and fuzzers.
//
// Why not simply relay what was read: TinyGPU.app takes the header with ONE recv(33) and hangs up
// on a short read, and a client takes a descriptor with ONE recvmsg(17). So whoever stands between
// must know where messages begin.
//
// Use: keep unconsumed bytes contiguous in a buffer of at least kHoldLimit + 33 bytes; call Next()
// with all of them; consume event.bytes.size() bytes from the front; repeat until kNeedMore.
// An event's `bytes` alias the caller's buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schemas/wire/commands.h"

namespace tg::wire {

// A payload up to this size is delivered only whole (a client that dies inside a write makes
// TinyGPU.app copy stale bytes into the BAR); a larger one is delivered in pieces as it comes.
inline constexpr uint64_t kHoldLimit = 1u << 20;

enum class RawReason : uint8_t {
  kNone = 0,
  kUnknownCommand,    // client sent a command whose length nobody knows
  kUnsolicitedReply,  // server sent bytes while no request was waiting
};
std::string_view RawReasonText(RawReason reason);

// ---- client -> server ----------------------------------------------------------------------

struct RequestEvent {
  enum class Kind : uint8_t {
    kNeedMore,      // nothing to deliver; `bytes` empty
    kRequest,       // header, and the whole payload if payload_size <= kHoldLimit
    kPayloadChunk,  // next piece of a large payload; payload_offset says where it lies
    kRaw,           // the stream is not framed any more: pass `bytes` on as they are
  };
  Kind kind = Kind::kNeedMore;
  RequestHeader header;              // kRequest, kPayloadChunk (of the request it belongs to)
  std::span<const uint8_t> bytes;    // wire bytes to forward, exactly, as one message
  std::span<const uint8_t> payload;  // the part of `bytes` behind the header
  uint64_t payload_size = 0;         // announced size of the whole payload
  uint64_t payload_offset = 0;       // of payload.front() within the whole payload
  RawReason raw_reason = RawReason::kNone;
  bool raw_starts = false;  // first kRaw event of this direction
  // True when the message is finished with these bytes.
  bool complete() const { return payload_offset + payload.size() == payload_size; }
};

// A request that still waits for its reply.
struct PendingReply {
  RequestHeader header;
  uint64_t call = 0;  // whatever number the owner gave to Sent()
};

// The owner reads no further request while this many wait (a client may pipeline without reading).
inline constexpr size_t kMaxPending = 1u << 16;

// Requests that wait for their reply, in order. A ring: no allocation once it has grown.
class Pairing {
 public:
  // To be called for each request delivered, before its bytes are passed on. Posted ones are not
  // queued.
  void Sent(const RequestHeader& header, uint64_t call, Revision revision);
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  // The i-th oldest, i < size().
  const PendingReply& at(size_t i) const { return ring_[(head_ + i) & (ring_.size() - 1)]; }
  const PendingReply& front() const { return at(0); }
  void Pop();

 private:
  std::vector<PendingReply> ring_;  // size 0 or a power of two
  size_t head_ = 0;
  size_t count_ = 0;
};

class RequestFramer {
 public:
  // kUndecided: find out (see the rules at Decide in the source); else a user's --protocol.
  explicit RequestFramer(Revision revision = Revision::kUndecided) : revision_(revision) {}

  RequestEvent Next(std::span<const uint8_t> unconsumed);

  // From here on pass bytes on unread.
  void GoRaw(RawReason reason);

  // The caller saw no new byte for a second while `unconsumed` waits. 26 bytes that read as an R1
  // request then prove R1 (an R2 client sends 33 at once), and the head of an unknown command is
  // let go raw. True if that changed anything: call Next() again.
  bool OnSilence(std::span<const uint8_t> unconsumed);

  Revision revision() const { return revision_; }
  bool raw() const { return raw_; }
  // Bytes still missing from a large payload that is being delivered in pieces.
  uint64_t payload_missing() const { return payload_size_ - payload_done_; }

 private:
  RequestEvent RawEvent(std::span<const uint8_t> bytes);

  Revision revision_;
  bool raw_ = false;
  bool raw_announced_ = false;
  RawReason raw_reason_ = RawReason::kNone;
  RequestHeader current_;
  uint64_t payload_size_ = 0;
  uint64_t payload_done_ = 0;
};

// ---- server -> client ----------------------------------------------------------------------

struct ReplyEvent {
  enum class Kind : uint8_t {
    kNeedMore,
    kReply,      // header and as much of the body as was there: a body is never held back
    kBodyChunk,  // the next piece of the body
    kRaw,        // unsolicited bytes, or after the stream lost its framing
  };
  Kind kind = Kind::kNeedMore;
  PendingReply request;  // kReply, kBodyChunk: what this answers
  ReplyHeader reply;
  std::span<const uint8_t> bytes;  // wire bytes to forward; a header is always whole
  std::span<const uint8_t> body;   // the part of `bytes` behind the header
  uint64_t body_size = 0;          // announced
  uint64_t body_offset = 0;        // of body.front()
  RawReason raw_reason = RawReason::kNone;
  bool raw_starts = false;
  bool complete() const { return body_offset + body.size() == body_size; }
};

class ReplyFramer {
 public:
  // Pops `pairing` when a reply is complete. `revision` is the request direction's.
  ReplyEvent Next(std::span<const uint8_t> unconsumed, Pairing& pairing, Revision revision);

  // From here on pass bytes on unread (the request direction went raw).
  void GoRaw(RawReason reason);
  bool raw() const { return raw_; }
  // True in the middle of a body.
  bool in_body() const { return in_body_; }
  uint64_t body_missing() const { return in_body_ ? body_size_ - body_done_ : 0; }

 private:
  bool raw_ = false;
  bool raw_announced_ = false;
  RawReason raw_reason_ = RawReason::kNone;
  bool in_body_ = false;
  ReplyHeader reply_;
  uint64_t body_size_ = 0;
  uint64_t body_done_ = 0;
};

}  // namespace tg::wire
