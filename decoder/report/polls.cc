#include "decoder/report/polls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"

namespace tg::report {

using model::CallRun;

PollTable::PollTable() : folder_(*this), assembler_(folder_) {}

void PollTable::Add(const trace::Record& record) {
  using Kind = trace::Record::Kind;
  if (record.kind == Kind::kRequest) {
    AddRequest(record);
    return;
  }
  if (!feeding_ && record.kind == Kind::kReply) {
    Held& last = held_[(held_total_ - 1) % kHeld];
    const bool small = record.reply.body.data.size() <= model::kKeptBytes &&
                       record.reply.injected.empty() && !record.reply.body.streamed;
    if (held_total_ > given_ && !last.answered && last.request.call == record.call && small) {
      last.reply = record;
      last.answered = true;
      std::copy(record.reply.body.data.begin(), record.reply.body.data.end(), last.body.begin());
      return;
    }
    Start();
  }
  if (!feeding_ && (record.kind == Kind::kRepeat || (record.packet && record.packet->has_chunk())))
    Start();
  if (feeding_) assembler_.Add(record);
}

void PollTable::AddRequest(const trace::Record& record) {
  const trace::RequestView& r = record.request;
  uint64_t hash = r.header.command;
  for (const uint64_t word : {static_cast<uint64_t>(r.header.bar) << 32 | r.header.dev,
                              r.header.arg0, r.header.arg1, r.header.arg2}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  // Writes of other values are no run.
  uint64_t value = 0;
  if (!r.payload.data.empty())
    std::memcpy(&value, r.payload.data.data(), std::min<size_t>(8, r.payload.data.size()));
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  bool again = false;
  for (const uint64_t asked : asked_) again |= asked == hash;  // no early end: it vectorizes
  asked_[requests_++ % asked_.size()] = hash;
  quiet_ = again ? 0 : quiet_ + 1;
  again_ = again ? again_ + 1 : 0;
  const bool plain = r.payload.data.size() <= model::kKeptBytes && !r.payload.streamed &&
                     !r.truncated && r.refused.empty() && r.injected.empty();
  if (feeding_ && quiet_ >= kQuiet && plain && !assembler_.waiting()) {
    folder_.Flush();
    feeding_ = false;
    given_ = held_total_;
  }
  if (!feeding_ && (again_ >= kAgain || !plain)) Start();
  if (feeding_)
    assembler_.Add(record);
  else
    Hold(record);
}

void PollTable::Hold(const trace::Record& record) {
  Held& held = held_[held_total_++ % kHeld];
  held.request = record;
  held.answered = false;
  const auto& data = record.request.payload.data;
  std::copy(data.begin(), data.end(), held.payload.begin());
}

void PollTable::Start() {
  const uint64_t first = std::max(given_, held_total_ > kHeld ? held_total_ - kHeld : 0);
  for (uint64_t i = first; i < held_total_; i++) {
    Held& held = held_[i % kHeld];
    auto& payload = held.request.request.payload.data;
    payload = std::span(held.payload).first(payload.size());
    assembler_.Add(held.request);
    if (!held.answered) continue;
    auto& body = held.reply.reply.body.data;
    body = std::span(held.body).first(body.size());
    assembler_.Add(held.reply);
  }
  given_ = held_total_;
  quiet_ = 0;
  feeding_ = true;
}

void PollTable::OnRun(CallRun&& run) {
  if (run.count < kLeastPollCalls) return;
  total_++;
  if (runs_.size() < kMaxPolls) {
    runs_.push_back(std::move(run));
    return;
  }
  const auto least =
      std::min_element(runs_.begin(), runs_.end(),
                       [](const CallRun& a, const CallRun& b) { return a.count < b.count; });
  if (least->count < run.count) *least = std::move(run);
}

void PollTable::Finish() {
  assembler_.Flush();
  folder_.Flush();
  std::sort(runs_.begin(), runs_.end(),
            [](const CallRun& a, const CallRun& b) { return a.first_seq < b.first_seq; });
}

std::string PollText(const CallRun& run) {
  using wire::Command;
  const std::string span = model::Duration(run.last_ns - run.first_ns);
  const model::Call& first = run.pattern.front();
  if (run.pattern.size() > 1) {
    std::string calls;
    for (const model::Call& call : run.pattern) {
      if (!calls.empty()) calls += ", ";
      calls += model::CallText(call.header);
    }
    return fmt::format("{} calls ({}) in a round, {}, {}", run.pattern.size(), calls,
                       model::Count(run.rounds(), "round"), span);
  }
  const auto command = static_cast<Command>(first.header.command);
  const bool read = command == Command::kMmioRead || command == Command::kSysmemRead;
  const bool write = command == Command::kMmioWrite || command == Command::kSysmemWrite;
  std::string target = model::TargetText(first.header);
  if (target.starts_with("bar")) target.replace(0, 3, "BAR");
  if (read && first.answered && first.reply.status == 0) {
    return fmt::format("{} read {} times, value constant {}, {}", target,
                       model::Thousands(run.count),
                       model::ValueText(first.body.data(), first.body.size), span);
  }
  if (write) {
    return fmt::format("{} written {} times, value constant {}, {}", target,
                       model::Thousands(run.count),
                       model::ValueText(first.payload.data(), first.payload.size), span);
  }
  return fmt::format("{} called {} times{}, {}", model::CallText(first.header),
                     model::Thousands(run.count),
                     first.answered && first.reply.status != 0 ? ", refused each time" : "", span);
}

std::string PollNames(const CallRun& run, const model::Device& device) {
  std::string out;
  for (size_t i = 0; i < run.pattern.size(); i++) {
    const wire::RequestHeader& header = run.pattern[i].header;
    const auto command = static_cast<wire::Command>(header.command);
    if (command != wire::Command::kMmioRead && command != wire::Command::kMmioWrite) continue;
    if (header.bar != 5 || device.vendor() != model::Vendor::kAmd) continue;
    const model::RegisterState* state = device.registers().Find(header.arg0);
    if (!state || !state->named()) continue;
    bool before = false;
    for (size_t j = 0; j < i; j++) {
      const wire::RequestHeader& other = run.pattern[j].header;
      before = before || (other.bar == header.bar && other.arg0 == header.arg0);
    }
    if (before) continue;
    if (!out.empty()) out += ", ";
    out += state->name();
  }
  return out;
}

}  // namespace tg::report
