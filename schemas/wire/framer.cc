#include "schemas/wire/framer.h"

#include <algorithm>
#include <utility>

namespace tg::wire {
namespace {

// Which argument words a command uses (bit 0 = arg0); a stock client leaves the others zero.
// Source: tinygrad system.py a9069c17, and dc82856084 for R1.
constexpr uint8_t kUsedArgs[kCommandCount] = {
    0b111, 0b000, 0b011, 0b011, 0b111, 0b000, 0b011, 0b011, 0b011, 0b011, 0b011, 0b000, 0b000,
};

// Would a stock client of this revision send that header? Only used to tell revisions apart.
bool Plausible(const RequestHeader& h, Revision revision) {
  const CommandInfo* info = FindCommand(h.command, revision);
  if (!info) return false;
  // R1 passed the size of MAP_SYSMEM_FD in the size field (arg1) and had no contiguous flag.
  const uint8_t used = kUsedArgs[h.command];
  if (!(used & 1) && h.arg0 != 0) return false;
  if (!(used & 2) && h.arg1 != 0) return false;
  if (!(used & 4) && h.arg2 != 0) return false;
  if (!info->bar_is_handle && h.bar >= kAppBarLimit) return false;
  return h.dev < 256 && h.arg0 < (1ull << 48) && h.arg1 < (1ull << 40);
}

// Rules (field reports, part 0): R1 had commands 1..7 only; a synchronous R2 client always sends
// 33 bytes at once, so 33 bytes that read well as R2 are R2, and 26 that stay alone are R1.
Revision Decide(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return Revision::kUndecided;
  if (bytes[0] < 1 || bytes[0] > 7) return Revision::kR2;
  if (bytes.size() < kRequestSizeR2) return Revision::kUndecided;
  const RequestHeader r2 = DecodeRequest(bytes, Revision::kR2);
  if (r2.dev == 0 && Plausible(r2, Revision::kR2)) return Revision::kR2;
  if (Plausible(DecodeRequest(bytes, Revision::kR1), Revision::kR1)) return Revision::kR1;
  return Revision::kR2;
}

}  // namespace

std::string_view RawReasonText(RawReason reason) {
  switch (reason) {
    case RawReason::kNone:
      return "";
    case RawReason::kUnknownCommand:
      return "unknown command, its length is not known";
    case RawReason::kUnsolicitedReply:
      return "bytes from server, but no request is waiting";
  }
  return "";
}

void Pairing::Sent(const RequestHeader& header, uint64_t call, Revision revision) {
  const CommandInfo* info = FindCommand(header.command, revision);
  if (!info || !info->reply) return;
  if (count_ == ring_.size()) {
    std::vector<PendingReply> grown(ring_.empty() ? 16 : ring_.size() * 2);
    for (size_t i = 0; i < count_; i++) grown[i] = at(i);
    ring_ = std::move(grown);
    head_ = 0;
  }
  ring_[(head_ + count_++) & (ring_.size() - 1)] = {header, call};
}

void Pairing::Pop() {
  head_ = (head_ + 1) & (ring_.size() - 1);
  count_--;
}

void RequestFramer::GoRaw(RawReason reason) {
  if (raw_) return;
  raw_ = true;
  raw_reason_ = reason;
}

RequestEvent RequestFramer::RawEvent(std::span<const uint8_t> bytes) {
  RequestEvent event;
  if (bytes.empty()) return event;
  event.kind = RequestEvent::Kind::kRaw;
  event.bytes = bytes;
  event.payload = bytes;
  event.raw_reason = raw_reason_;
  event.raw_starts = !raw_announced_;
  if (event.raw_starts && bytes.size() >= RequestSize(revision_))
    event.header = DecodeRequest(bytes, revision_);
  else
    event.header.command = bytes[0];
  raw_announced_ = true;
  return event;
}

RequestEvent RequestFramer::Next(std::span<const uint8_t> unconsumed) {
  RequestEvent event;
  if (payload_done_ < payload_size_) {  // a payload under way is finished even when going raw
    if (unconsumed.empty()) return event;
    event.kind = RequestEvent::Kind::kPayloadChunk;
    event.header = current_;
    event.bytes = unconsumed.first(
        static_cast<size_t>(std::min<uint64_t>(unconsumed.size(), payload_size_ - payload_done_)));
    event.payload = event.bytes;
    event.payload_size = payload_size_;
    event.payload_offset = payload_done_;
    payload_done_ += event.bytes.size();
    return event;
  }
  if (raw_) return RawEvent(unconsumed);
  if (revision_ == Revision::kUndecided) revision_ = Decide(unconsumed);
  if (revision_ == Revision::kUndecided) return event;
  const size_t header_size = RequestSize(revision_);
  if (unconsumed.size() < header_size) return event;

  const RequestHeader header = DecodeRequest(unconsumed, revision_);
  if (!FindCommand(header.command, revision_)) {
    GoRaw(RawReason::kUnknownCommand);
    return RawEvent(unconsumed);
  }
  const uint64_t payload_size = PayloadSize(header, revision_);
  const uint64_t available = unconsumed.size() - header_size;
  if (payload_size <= kHoldLimit && available < payload_size) return event;

  event.kind = RequestEvent::Kind::kRequest;
  event.header = header;
  event.payload_size = payload_size;
  event.bytes =
      unconsumed.first(header_size + static_cast<size_t>(std::min(available, payload_size)));
  event.payload = event.bytes.subspan(header_size);
  if (!event.complete()) {
    current_ = header;
    payload_size_ = payload_size;
    payload_done_ = event.payload.size();
  }
  return event;
}

bool RequestFramer::OnSilence(std::span<const uint8_t> unconsumed) {
  if (raw_ || payload_done_ < payload_size_ || unconsumed.empty()) return false;
  if (!FindCommand(unconsumed[0], revision_ == Revision::kR1 ? Revision::kR1 : Revision::kR2)) {
    GoRaw(RawReason::kUnknownCommand);
    return true;
  }
  if (revision_ != Revision::kUndecided || unconsumed.size() < kRequestSizeR1) return false;
  if (!Plausible(DecodeRequest(unconsumed, Revision::kR1), Revision::kR1)) return false;
  revision_ = Revision::kR1;
  return true;
}

void ReplyFramer::GoRaw(RawReason reason) {
  if (raw_) return;
  raw_ = true;
  raw_reason_ = reason;
}

ReplyEvent ReplyFramer::Next(std::span<const uint8_t> unconsumed, Pairing& pairing,
                             Revision revision) {
  ReplyEvent event;
  if (unconsumed.empty()) return event;
  if (in_body_) {  // a body under way is finished even when going raw
    event.kind = ReplyEvent::Kind::kBodyChunk;
    event.request = pairing.front();
    event.reply = reply_;
    event.bytes = unconsumed.first(
        static_cast<size_t>(std::min<uint64_t>(unconsumed.size(), body_size_ - body_done_)));
    event.body = event.bytes;
    event.body_size = body_size_;
    event.body_offset = body_done_;
    body_done_ += event.bytes.size();
    if (event.complete()) {
      in_body_ = false;
      pairing.Pop();
    }
    return event;
  }
  if (!raw_ && pairing.empty()) GoRaw(RawReason::kUnsolicitedReply);
  if (raw_) {
    event.kind = ReplyEvent::Kind::kRaw;
    event.bytes = unconsumed;
    event.body = unconsumed;
    event.raw_reason = raw_reason_;
    event.raw_starts = !raw_announced_;
    raw_announced_ = true;
    return event;
  }
  if (unconsumed.size() < kReplySize) return event;

  event.kind = ReplyEvent::Kind::kReply;
  event.request = pairing.front();
  event.reply = DecodeReply(unconsumed);
  event.body_size = BodySize(event.request.header, event.reply, revision);
  event.bytes =
      unconsumed.first(kReplySize + static_cast<size_t>(std::min<uint64_t>(
                                        unconsumed.size() - kReplySize, event.body_size)));
  event.body = event.bytes.subspan(kReplySize);
  if (event.complete()) {
    pairing.Pop();
  } else {
    in_body_ = true;
    reply_ = event.reply;
    body_size_ = event.body_size;
    body_done_ = event.body.size();
  }
  return event;
}

}  // namespace tg::wire
