#include "decoder/explain/read_watch.h"

#include <algorithm>

namespace tg::explain {
namespace {

bool IsRead(const wire::RequestHeader& h) {
  const auto command = static_cast<wire::Command>(h.command);
  return (command == wire::Command::kMmioRead || command == wire::Command::kSysmemRead) &&
         h.arg1 > 0 && h.arg1 <= 8;
}

uint64_t Value(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 8; i++) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

constexpr uint64_t kLong = 2'000'000'000;  // ns

bool Good(const trace::ReplyView& reply) {
  return reply.reply.status == 0 && reply.body.whole();
}

}  // namespace

void ReadWatch::End() {
  if (run_.reads == 0) return;
  const bool sysmem = run_.header.command == static_cast<uint8_t>(wire::Command::kSysmemRead);
  if (sysmem && run_.duration_ns() >= kLong) ended_ = run_;
  run_ = {};
}

void ReadWatch::OnRead(const wire::RequestHeader& header, uint64_t value, model::Stamp first,
                       model::Stamp last, uint64_t times) {
  if (run_.reads == 0 || !(run_.header == header) || run_.value != value) {
    End();
    run_.header = header;
    run_.value = value;
    run_.first = first;
  }
  run_.reads += std::min(times, ~run_.reads);
  run_.last = last;
}

void ReadWatch::Feed(const trace::Record& record) {
  using Kind = trace::Record::Kind;
  switch (record.kind) {
    case Kind::kRequest:
      asked_ = record.request.header;
      asked_call_ = record.call;
      asked_ns_ = record.time_ns;
      if (!IsRead(asked_)) End();
      return;
    case Kind::kReply:
      if (record.call != asked_call_ || !IsRead(asked_)) return;
      if (!Good(record.reply)) {
        End();
        return;
      }
      OnRead(asked_, Value(record.reply.body.data), {asked_call_, asked_ns_},
             {asked_call_, std::max(asked_ns_, record.time_ns)}, 1);
      return;
    case Kind::kRepeat: {
      if (record.pattern.size() != 1 || !IsRead(record.pattern[0].request.header) ||
          !record.pattern[0].reply || !Good(*record.pattern[0].reply)) {
        End();
        return;
      }
      const uint64_t times = std::max<uint64_t>(record.issued, 1);
      OnRead(record.pattern[0].request.header, Value(record.pattern[0].reply->body.data),
             {record.call, record.time_ns},
             {record.call + times - 1, std::max(record.time_ns, record.last_time_ns)}, times);
      return;
    }
    case Kind::kPacket:
      return;
  }
}

}  // namespace tg::explain
