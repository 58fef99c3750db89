#include "schemas/trace/fold.h"

#include <algorithm>
#include <cstring>

#include "schemas/wire/bytes.h"

namespace tg::trace {
namespace {

constexpr uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

uint64_t MixBytes(uint64_t hash, std::span<const uint8_t> bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) hash = Mix(hash, LoadLe<uint64_t>(bytes.data() + i));
  uint64_t rest = bytes.size() << 56;
  for (uint32_t shift = 0; i < bytes.size(); i++, shift += 8)
    rest |= static_cast<uint64_t>(bytes[i]) << shift;
  return Mix(hash, rest);
}

uint64_t HashRequest(const RequestRecord& r) {
  uint64_t h = Mix(r.header.command, static_cast<uint64_t>(r.header.dev) << 32 | r.header.bar);
  h = Mix(h, r.header.arg0);
  h = Mix(h, r.header.arg1);
  h = Mix(h, r.header.arg2);
  return MixBytes(h, r.payload.data);
}

bool Whole(const BodyRecord& body) {
  return body.data.size() == body.size && body.size <= kMaxFoldedBytes && !body.streamed;
}

bool Foldable(const RequestRecord& r) {
  return Whole(r.payload) && !r.truncated && r.injected.empty() && r.refused.empty() &&
         wire::FindCommand(r.header.command) != nullptr;
}

bool Foldable(const ReplyRecord& r) {
  return Whole(r.body) && r.descriptors == 0 && !r.control_truncated && r.injected.empty();
}

bool Equal(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

bool CallImage::SameRequest(const RequestRecord& record) const {
  return record.header == header && Equal(record.payload.data, payload()) && Foldable(record);
}

bool CallImage::SameReply(const ReplyRecord& record) const {
  return record.reply == reply && Equal(record.body.data, body()) && Foldable(record);
}

bool CallImage::operator==(const CallImage& other) const {
  return header == other.header && reply == other.reply && posted == other.posted &&
         Equal(payload(), other.payload()) && Equal(body(), other.body());
}

size_t CallHistory::PeriodFor(const RequestRecord& record) const {
  if (open_ || !periodic_) return 0;
  const uint64_t hash = HashRequest(record);
  for (size_t p = 1; p <= kMaxPeriod; p++) {
    if (equal_[p - 1] < p || Back(p).request_hash != hash) continue;
    // The hashes say so; the bytes decide.
    bool equal = Back(p).image.SameRequest(record);
    for (size_t i = 1; i <= p && equal; i++) equal = Back(i).image == Back(i + p).image;
    if (equal) return p;
  }
  return 0;
}

void CallHistory::OnRequest(const RequestRecord& record) {
  if (open_) Clear();
  if (!Foldable(record)) {
    Clear();
    return;
  }
  count_++;
  Entry& entry = Newest();
  CallImage& image = entry.image;
  image.header = record.header;
  image.reply = {};
  image.posted = !wire::FindCommand(record.header.command)->reply;
  image.payload_size = static_cast<uint8_t>(record.payload.size);
  image.body_size = 0;
  std::copy(record.payload.data.begin(), record.payload.data.end(), image.bytes.begin());
  entry.request_hash = entry.hash = HashRequest(record);
  open_ = !image.posted;
  if (image.posted) Complete();
}

void CallHistory::OnReply(const ReplyRecord& record, bool newest) {
  if (!newest || !open_ || !Foldable(record) ||
      Newest().image.payload_size + record.body.size > kMaxFoldedBytes) {
    Clear();
    return;
  }
  Entry& entry = Newest();
  CallImage& image = entry.image;
  image.reply = record.reply;
  image.body_size = static_cast<uint8_t>(record.body.size);
  std::copy(record.body.data.begin(), record.body.data.end(),
            image.bytes.begin() + image.payload_size);
  uint64_t h = Mix(entry.request_hash, record.reply.status);
  h = Mix(h, record.reply.resp0);
  h = Mix(h, record.reply.resp1);
  entry.hash = MixBytes(h, record.body.data);
  open_ = false;
  Complete();
}

void CallHistory::Complete() {
  const uint64_t hash = Back(1).hash;
  periodic_ = false;
  for (size_t p = 1; p <= kMaxPeriod; p++) {
    uint32_t& equal = equal_[p - 1];
    equal = count_ > p && Back(1 + p).hash == hash ? equal + 1 : 0;
    if (equal >= p) periodic_ = true;
  }
}

void CallHistory::Clear() {
  count_ = 0;
  open_ = periodic_ = false;
  equal_ = {};
}

}  // namespace tg::trace
