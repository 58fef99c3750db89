#include "proxy/tap.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proxy/xxh3.h"
#include "schemas/trace/trace.pb.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;

bool AllZero(std::span<const uint8_t> bytes) {
  // Compares the range with itself, one byte on: the library's fastest scan.
  return bytes.empty() ||
         (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

void HashZeros(XXH3_state_t* hash, uint64_t count) {
  static constexpr std::array<uint8_t, 4096> kZeros{};
  for (; count > kZeros.size(); count -= kZeros.size())
    XXH3_64bits_update(hash, kZeros.data(), kZeros.size());
  XXH3_64bits_update(hash, kZeros.data(), count);
}

}  // namespace

struct Tap::Stream {
  bool active = false;
  uint64_t call = 0;
  bool of_reply = false;
  uint64_t size = 0;
  uint64_t received = 0;
  // Zeros are counted, and hashed only when something else follows: cleared memory is a large part
  // of what goes to a card.
  bool zero = true;
  XXH3_state_t hash;  // of the first `received` bytes, unless `zero`

  void Add(std::span<const uint8_t> bytes) {
    if (zero && !AllZero(bytes)) {
      zero = false;
      HashZeros(&hash, received);
    }
    if (!zero) XXH3_64bits_update(&hash, bytes.data(), bytes.size());
    received += bytes.size();
  }
};

Result<BodyPolicy> ParseBodyPolicy(std::string_view text) {
  for (const BodyPolicy policy : {BodyPolicy::kFull, BodyPolicy::kHead, BodyPolicy::kHash})
    if (BodyPolicyName(policy) == text) return policy;
  return Fail(Error::Code::kUsage,
              "--bodies takes full, head or hash, not '" + std::string(text) + "'");
}

std::string_view BodyPolicyName(BodyPolicy policy) {
  switch (policy) {
    case BodyPolicy::kFull:
      return "full";
    case BodyPolicy::kHead:
      return "head";
    case BodyPolicy::kHash:
      return "hash";
  }
  return "";
}

Tap::Tap(trace::TraceWriter& writer, BodyPolicy policy)
    : writer_(writer),
      policy_(policy),
      payload_(std::make_unique<Stream>()),
      body_(std::make_unique<Stream>()) {
  pending_.bytes.reserve(kWholeReply);
}

Tap::~Tap() = default;

std::span<const uint8_t> Tap::Head(std::span<const uint8_t> bytes) const {
  size_t keep = 0;
  if (policy_ == BodyPolicy::kFull) keep = trace::kMaxChunk;
  if (policy_ == BodyPolicy::kHead) keep = kHeadBytes;
  return bytes.first(std::min(bytes.size(), keep));
}

// A record of bytes that are all here.
trace::BodyRecord Tap::Whole(std::span<const uint8_t> bytes, size_t small) {
  trace::BodyRecord record;
  record.size = bytes.size();
  record.data = bytes;
  if (bytes.size() <= small) return record;
  record.data = Head(bytes);
  record.all_zero = AllZero(bytes);
  if (record.data.size() < bytes.size() && !record.all_zero)
    record.xxh3 = XXH3_64bits(bytes.data(), bytes.size());
  return record;
}

uint64_t Tap::Request(const wire::RequestEvent& event, uint64_t now, const Marks& marks) {
  if (event.kind == wire::RequestEvent::Kind::kPayloadChunk) {
    Continue(*payload_, event.payload, now);
    return payload_->call;
  }
  trace::RequestRecord record;
  record.header = event.header;
  record.refused = marks.refused;
  record.injected = marks.injected;
  if (event.complete()) {
    const bool ring = event.header.command == static_cast<uint8_t>(wire::Command::kSysmemWrite) &&
                      policy_ != BodyPolicy::kHash;
    if (event.payload_size > 0)
      record.payload = Whole(event.payload, ring ? kWholeSysmem : kWholeBody);
    return writer_.Request(record, now);
  }
  record.payload.size = event.payload_size;
  record.payload.data = Head(event.payload);
  record.payload.streamed = true;
  const uint64_t call = writer_.Request(record, now);
  StartStream(*payload_, call, false, event.payload_size, record.payload.data, event.payload, now);
  return call;
}

void Tap::TruncatedRequest(std::span<const uint8_t> bytes, wire::Revision revision, uint64_t now) {
  const size_t header_size = wire::RequestSize(revision);
  if (bytes.size() < header_size) {
    Raw(false, bytes, 0, "client closed inside a request header; not forwarded", now);
    return;
  }
  trace::RequestRecord record;
  record.header = wire::DecodeRequest(bytes, revision);
  const auto payload = bytes.subspan(header_size);
  record.payload = Whole(payload);
  record.payload.size = wire::PayloadSize(record.header, revision);
  record.truncated = true;
  record.received = payload.size();
  writer_.Request(record, now);
}

void Tap::TruncatedPayload(uint64_t now) {
  if (payload_->active) Finish(*payload_, now);
}

void Tap::StartStream(Stream& stream, uint64_t call, bool of_reply, uint64_t size,
                      std::span<const uint8_t> recorded, std::span<const uint8_t> bytes,
                      uint64_t now) {
  stream.active = true;
  stream.call = call;
  stream.of_reply = of_reply;
  stream.size = size;
  stream.received = 0;
  stream.zero = true;
  XXH3_64bits_reset(&stream.hash);
  if (policy_ == BodyPolicy::kFull && bytes.size() > recorded.size())
    EmitChunks(stream, recorded.size(), bytes.subspan(recorded.size()), now);
  stream.Add(bytes);
  if (stream.received == size) Finish(stream, now);
}

void Tap::Continue(Stream& stream, std::span<const uint8_t> bytes, uint64_t now) {
  if (!stream.active) return;
  if (policy_ == BodyPolicy::kFull) EmitChunks(stream, stream.received, bytes, now);
  stream.Add(bytes);
  if (stream.received >= stream.size) Finish(stream, now);
}

void Tap::EmitChunks(const Stream& stream, uint64_t offset, std::span<const uint8_t> bytes,
                     uint64_t now) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), trace::kMaxChunk));
    pb::Packet packet;
    pb::BodyChunk& chunk = *packet.mutable_chunk();
    chunk.set_calls_back(writer_.calls() - stream.call);
    chunk.set_of_reply(stream.of_reply);
    chunk.set_offset(offset);
    chunk.set_data(piece.data(), piece.size());
    writer_.Append(packet, now);
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

void Tap::Finish(Stream& stream, uint64_t now) {
  stream.active = false;
  pb::Packet packet;
  pb::BodyChunk& chunk = *packet.mutable_chunk();
  chunk.set_calls_back(writer_.calls() - stream.call);
  chunk.set_of_reply(stream.of_reply);
  chunk.set_offset(stream.received);
  chunk.set_last(true);
  chunk.set_received(stream.received);
  if (stream.zero)
    chunk.set_all_zero(true);
  else
    chunk.set_xxh3(XXH3_64bits_digest(&stream.hash));
  writer_.Append(packet, now);
}

void Tap::Reply(const wire::ReplyEvent& event, uint32_t descriptors, bool control_truncated,
                uint64_t now, std::string_view injected) {
  if (event.kind == wire::ReplyEvent::Kind::kBodyChunk) {
    if (!pending_.active) {
      Continue(*body_, event.body, now);
      return;
    }
    const size_t take = std::min(event.body.size(), pending_.wanted - pending_.bytes.size());
    pending_.bytes.insert(pending_.bytes.end(), event.body.begin(), event.body.begin() + take);
    if (pending_.bytes.size() == pending_.wanted) EmitPendingReply(false, now);
    if (take < event.body.size()) Continue(*body_, event.body.subspan(take), now);
    return;
  }
  trace::ReplyRecord record;
  record.call = event.request.call;
  record.reply = event.reply;
  record.descriptors = descriptors;
  record.control_truncated = control_truncated;
  record.injected = injected;
  if (event.complete()) {
    if (event.body_size > 0) record.body = Whole(event.body, kWholeReply);
    writer_.Reply(record, now);
    return;
  }
  // Small ones wait until they are whole, of large ones the head is waited for.
  record.body.size = event.body_size;
  pending_.active = true;
  pending_.injected = injected;
  record.injected = pending_.injected;
  pending_.record = record;
  pending_.time = now;
  pending_.wanted = event.body_size <= kWholeReply ? event.body_size
                    : policy_ == BodyPolicy::kHash ? 0
                                                   : kHeadBytes;
  const size_t take = std::min(event.body.size(), pending_.wanted);
  pending_.bytes.assign(event.body.begin(), event.body.begin() + take);
  if (pending_.bytes.size() == pending_.wanted) EmitPendingReply(false, now);
  if (take < event.body.size()) Continue(*body_, event.body.subspan(take), now);
}

// `cut`: the rest never came.
void Tap::EmitPendingReply(bool cut, uint64_t now) {
  pending_.active = false;
  trace::ReplyRecord& record = pending_.record;
  record.body.data = pending_.bytes;
  record.body.streamed = cut || pending_.bytes.size() < record.body.size;
  writer_.Reply(record, now);
  if (record.body.streamed)
    StartStream(*body_, record.call, true, record.body.size, pending_.bytes, pending_.bytes, now);
  record.body.data = {};
}

void Tap::TruncatedReply(uint64_t now) {
  if (pending_.active) EmitPendingReply(true, now);
  if (body_->active) Finish(*body_, now);
}

void Tap::Raw(bool from_server, std::span<const uint8_t> bytes, uint32_t descriptors,
              std::string_view reason, uint64_t now) {
  do {
    const auto piece = bytes.first(std::min(bytes.size(), trace::kMaxChunk));
    pb::Packet packet;
    pb::Raw& raw = *packet.mutable_raw();
    raw.set_from_server(from_server);
    raw.set_size(piece.size());
    const auto kept = Small(piece.size()) ? piece : Head(piece);
    raw.set_data(kept.data(), kept.size());
    raw.set_descriptors(descriptors);
    raw.set_reason(std::string(reason));
    writer_.Append(packet, now);
    bytes = bytes.subspan(piece.size());
    descriptors = 0;
    reason = {};
  } while (!bytes.empty());
}

void Tap::Event(const tinygpu::trace::SessionEvent& event, uint64_t now) {
  pb::Packet packet;
  *packet.mutable_event() = event;
  writer_.Append(packet, now);
}

}  // namespace tg::proxy
