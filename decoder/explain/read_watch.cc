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

ReadRun ReadWatch::turn() const {
  ReadRun longest;
  for (const ReadRun& word : words_)
    if (word.reads > 0 && (longest.reads == 0 || word.duration_ns() > longest.duration_ns()))
      longest = word;
  return longest;
}

void ReadWatch::OnTurn(const wire::RequestHeader& header, uint64_t value, model::Stamp first,
                       model::Stamp last, uint64_t times) {
  ReadRun* word = nullptr;
  for (ReadRun& w : words_)
    if (w.reads > 0 && w.header == header) word = &w;
  if (!word) {
    for (ReadRun& w : words_)
      if (!word && w.reads == 0) word = &w;
    if (!word) {  // a fifth word: no turn of a few
      words_ = {};
      word = &words_[0];
    }
    *word = {.header = header, .value = value, .reads = 0, .first = first, .last = last};
  } else if (word->value != value) {
    *word = {.header = header, .value = value, .reads = 0, .first = first, .last = last};
  }
  word->reads += std::min(times, ~word->reads);
  word->last = last;
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
      if (!IsRead(asked_)) {
        End();
        words_ = {};
      }
      return;
    case Kind::kReply: {
      if (record.call != asked_call_ || !IsRead(asked_)) return;
      if (!Good(record.reply)) {
        End();
        words_ = {};
        return;
      }
      const uint64_t value = Value(record.reply.body.data);
      const model::Stamp last = {asked_call_, std::max(asked_ns_, record.time_ns)};
      OnRead(asked_, value, {asked_call_, asked_ns_}, last, 1);
      OnTurn(asked_, value, {asked_call_, asked_ns_}, last, 1);
      return;
    }
    case Kind::kRepeat: {
      bool reads = !record.pattern.empty();
      for (const auto& one : record.pattern)
        reads &= IsRead(one.request.header) && one.reply && Good(*one.reply);
      const bool few = reads && record.pattern.size() <= words_.size();
      if (!few) words_ = {};
      if (!reads || record.pattern.size() != 1) End();
      if (!few) return;
      const uint64_t issued = std::max<uint64_t>(record.issued, 1);
      const uint64_t rounds = std::max<uint64_t>(issued / record.pattern.size(), 1);
      const model::Stamp first = {record.call, record.time_ns};
      const model::Stamp last = {record.call + issued - 1,
                                 std::max(record.time_ns, record.last_time_ns)};
      for (const auto& one : record.pattern)
        OnTurn(one.request.header, Value(one.reply->body.data), first, last, rounds);
      if (record.pattern.size() == 1)
        OnRead(record.pattern[0].request.header, Value(record.pattern[0].reply->body.data), first,
               last, issued);
      return;
    }
    case Kind::kPacket:
      return;
  }
}

}  // namespace tg::explain
