// Both directions of a connection, any bytes in any chunking.
//
// Input: flags u8 | chunk seed u8 | request bytes u16 | that many bytes of the client's stream |
// the rest is the server's stream. Flags: bits 0-1 revision, bit 2 silence after each chunk,
// flags 10 and seed 0: a mebibyte of 0xff after the client's stream.
#include <algorithm>
#include <vector>

#include "schemas/wire/framer.h"
#include "tests/fuzz/fuzz.h"

namespace tg::wire {
namespace {

using Bytes = std::span<const uint8_t>;

// Where a message starts in its stream, and what its header said.
struct Message {
  size_t offset = 0;
  uint64_t size = 0;  // of its payload or body
  RequestHeader request;
  ReplyHeader reply;
  bool raw = false;
  friend bool operator==(const Message&, const Message&) = default;
};

Message RawAt(size_t offset) {
  Message message;
  message.offset = offset;
  message.raw = true;
  return message;
}

// A stream that arrives piece by piece: [begin, end) has arrived and was not consumed yet.
struct Stream {
  Bytes all;
  uint32_t seed;
  uint32_t random;
  size_t begin = 0;
  size_t end = 0;

  Bytes unconsumed() const { return all.subspan(begin, end - begin); }
  bool arrived() const { return end == all.size(); }
  void Arrive() {
    random = random * 1664525 + 1013904223;
    // Mostly small pieces; seed 0 brings everything at once.
    const size_t size = random >> 24 < 16 ? 1 : 1 + (random >> 20) % 97;
    end = seed == 0 ? all.size() : (all.size() - end < size ? all.size() : end + size);
  }
  Stream(Bytes bytes, uint32_t chunk_seed)
      : all(bytes), seed(chunk_seed), random(chunk_seed * 2654435761u) {}
};

class RequestSide {
 public:
  explicit RequestSide(Revision revision) : framer(revision) {}

  // Takes every event there is.
  void Drain(Stream& stream, Pairing& pairing) {
    for (;;) {
      const Bytes unconsumed = stream.unconsumed();
      const bool was_raw = framer.raw();
      const RequestEvent event = framer.Next(unconsumed);
      if (event.kind == RequestEvent::Kind::kNeedMore) {
        FUZZ_CHECK(event.bytes.empty());
        // What the caller has to keep is bounded whatever a header announces.
        FUZZ_CHECK(unconsumed.size() < kHoldLimit + kRequestSizeR2);
        FUZZ_CHECK(!framer.raw() || unconsumed.empty());
        return;
      }
      FUZZ_CHECK(!event.bytes.empty());
      FUZZ_CHECK(event.bytes.data() == unconsumed.data());
      FUZZ_CHECK(event.bytes.size() <= unconsumed.size());
      switch (event.kind) {
        case RequestEvent::Kind::kRequest: {
          FUZZ_CHECK(!was_raw && left_ == 0);
          const size_t header = RequestSize(framer.revision());
          FUZZ_CHECK(framer.revision() != Revision::kUndecided);
          FUZZ_CHECK(event.bytes.size() >= header);
          FUZZ_CHECK(event.header == DecodeRequest(unconsumed, framer.revision()));
          FUZZ_CHECK(event.payload.data() == event.bytes.data() + header);
          FUZZ_CHECK(event.payload.size() == event.bytes.size() - header);
          FUZZ_CHECK(event.payload_offset == 0);
          FUZZ_CHECK(event.payload_size == PayloadSize(event.header, framer.revision()));
          FUZZ_CHECK(event.payload_size > kHoldLimit || event.complete());
          FUZZ_CHECK(event.payload.size() <= event.payload_size);
          left_ = event.payload_size - event.payload.size();
          size_ = event.payload_size;
          messages.push_back({stream.begin, event.payload_size, event.header, {}});
          pairing.Sent(event.header, messages.size(), framer.revision());
          break;
        }
        case RequestEvent::Kind::kPayloadChunk:
          FUZZ_CHECK(left_ >= event.bytes.size());
          FUZZ_CHECK(event.payload_size == size_);
          FUZZ_CHECK(event.payload_offset == size_ - left_);
          FUZZ_CHECK(event.payload.size() == event.bytes.size());
          left_ -= event.bytes.size();
          FUZZ_CHECK(event.complete() == (left_ == 0));
          break;
        default:
          FUZZ_CHECK(framer.raw() && left_ == 0);
          FUZZ_CHECK(event.bytes.size() == unconsumed.size());
          FUZZ_CHECK(event.raw_reason != RawReason::kNone);
          FUZZ_CHECK(event.raw_starts == !raw_seen_);
          if (!raw_seen_) messages.push_back(RawAt(stream.begin));
          raw_seen_ = true;
      }
      FUZZ_CHECK(framer.payload_missing() == left_);
      stream.begin += event.bytes.size();
    }
  }

  RequestFramer framer;
  std::vector<Message> messages;

 private:
  uint64_t left_ = 0;
  uint64_t size_ = 0;
  bool raw_seen_ = false;
};

class ReplySide {
 public:
  void Drain(Stream& stream, Pairing& pairing, Revision revision) {
    for (;;) {
      const Bytes unconsumed = stream.unconsumed();
      const bool waiting = !pairing.empty();
      const PendingReply oldest = waiting ? pairing.front() : PendingReply{};
      const size_t pending = pairing.size();
      const ReplyEvent event = framer.Next(unconsumed, pairing, revision);
      if (event.kind == ReplyEvent::Kind::kNeedMore) {
        FUZZ_CHECK(event.bytes.empty());
        FUZZ_CHECK(unconsumed.size() < kReplySize);  // a body is never held back
        return;
      }
      FUZZ_CHECK(!event.bytes.empty());
      FUZZ_CHECK(event.bytes.data() == unconsumed.data());
      FUZZ_CHECK(event.bytes.size() <= unconsumed.size());
      if (event.kind == ReplyEvent::Kind::kRaw) {
        FUZZ_CHECK(framer.raw() && left_ == 0);
        FUZZ_CHECK(event.bytes.size() == unconsumed.size());
        FUZZ_CHECK(event.raw_starts == !raw_seen_);
        if (!raw_seen_) messages.push_back(RawAt(stream.begin));
        raw_seen_ = true;
        FUZZ_CHECK(pairing.size() == pending);
      } else {
        FUZZ_CHECK(waiting && event.request.call == oldest.call);
        FUZZ_CHECK(event.request.header == oldest.header);
        if (event.kind == ReplyEvent::Kind::kReply) {
          FUZZ_CHECK(left_ == 0 && event.bytes.size() >= kReplySize);
          FUZZ_CHECK(event.reply == DecodeReply(unconsumed));
          FUZZ_CHECK(event.body.data() == event.bytes.data() + kReplySize);
          FUZZ_CHECK(event.body.size() == event.bytes.size() - kReplySize);
          FUZZ_CHECK(event.body_offset == 0);
          FUZZ_CHECK(event.body_size == BodySize(oldest.header, event.reply, revision));
          left_ = size_ = event.body_size;
          messages.push_back({stream.begin, event.body_size, oldest.header, event.reply});
        } else {
          FUZZ_CHECK(event.body.size() == event.bytes.size());
          FUZZ_CHECK(event.body_size == size_ && event.body_offset == size_ - left_);
        }
        FUZZ_CHECK(event.body.size() <= left_);
        left_ -= event.body.size();
        FUZZ_CHECK(event.complete() == (left_ == 0));
        FUZZ_CHECK(pairing.size() == pending - (left_ == 0 ? 1 : 0));
      }
      FUZZ_CHECK(framer.body_missing() == left_);
      stream.begin += event.bytes.size();
    }
  }

  ReplyFramer framer;
  std::vector<Message> messages;

 private:
  uint64_t left_ = 0;
  uint64_t size_ = 0;
  bool raw_seen_ = false;
};

// The client's whole stream, then the server's: what was found must not depend on the chunking.
std::vector<Message> InTurn(Bytes requests, Bytes replies, Revision revision, uint32_t chunk_seed) {
  Pairing pairing;
  RequestSide client(revision);
  Stream up(requests, chunk_seed);
  while (!up.arrived()) {
    up.Arrive();
    client.Drain(up, pairing);
  }
  ReplySide server;
  Stream down(replies, chunk_seed);
  while (!down.arrived()) {
    down.Arrive();
    server.Drain(down, pairing, client.framer.revision());
  }
  std::vector<Message> messages = client.messages;
  messages.insert(messages.end(), server.messages.begin(), server.messages.end());
  messages.push_back({up.begin, down.begin, {}, {}});
  return messages;
}

void AtOnce(Bytes requests, Bytes replies, Revision revision, uint32_t chunk_seed, bool silence) {
  Pairing pairing;
  RequestSide client(revision);
  ReplySide server;
  Stream up(requests, chunk_seed);
  Stream down(replies, chunk_seed + 1);
  while (!up.arrived() || !down.arrived()) {
    if (!up.arrived()) up.Arrive();
    client.Drain(up, pairing);
    if (silence) {
      // Two things can be settled, the revision and that the stream is raw: then it is quiet.
      int settled = 0;
      for (; client.framer.OnSilence(up.unconsumed()); ++settled) {
        FUZZ_CHECK(client.framer.revision() != Revision::kUndecided || client.framer.raw());
        client.Drain(up, pairing);
        FUZZ_CHECK(settled < 2);
      }
    }
    if (!down.arrived()) down.Arrive();
    server.Drain(down, pairing, client.framer.revision());
  }
}

}  // namespace
}  // namespace tg::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg::wire;
  tg::fuzz::Input input(data, size);
  const auto flags = input.Take<uint8_t>();
  const auto chunk_seed = input.Take<uint8_t>();
  const auto request_size = input.Take<uint16_t>();
  const auto revision = static_cast<Revision>((flags & 3) % 3);
  const auto requests = input.Bytes(request_size);
  const auto replies = input.Rest();

  AtOnce(requests, replies, revision, chunk_seed, (flags & 4) != 0);
  FUZZ_CHECK(InTurn(requests, replies, revision, 0) ==
             InTurn(requests, replies, revision, chunk_seed | 1u));
  if (flags == 10 && chunk_seed == 0) {
    // What is held back is given out in the end, or is a header that never got whole.
    static std::vector<uint8_t> padded(65536 + kHoldLimit + kRequestSizeR2, 0xff);
    std::copy(requests.begin(), requests.end(), padded.begin());
    InTurn(Bytes(padded).first(requests.size() + kHoldLimit + kRequestSizeR2), replies, revision,
           0);
    std::fill_n(padded.begin(), requests.size(), uint8_t{0xff});
  }
  return 0;
}
