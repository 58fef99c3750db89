#include "decoder/report/polls.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::report {

using model::CallRun;

namespace {

// Different for what is asked differently, but for chance: that costs the folder a look. Products
// that do not wait for each other.
uint64_t HashOf(const trace::RequestView& r) {
  const auto& h = r.header;
  // Writes of other values are no run.
  uint64_t value = 0;
  if (r.payload.data.size() >= 8) {
    value = LoadLe<uint64_t>(r.payload.data.data());
  } else if (r.payload.data.size() == 4) {
    value = LoadLe<uint32_t>(r.payload.data.data());
  } else {
    std::copy(r.payload.data.begin(), r.payload.data.end(), reinterpret_cast<uint8_t*>(&value));
  }
  const uint64_t where = (uint64_t{h.bar} << 32 | h.dev) * 0x9e3779b97f4a7c15ull + h.command;
  const uint64_t args = h.arg0 * 0xc2b2ae3d27d4eb4full ^ std::rotl(h.arg1, 24) ^ h.arg2 << 7;
  return (where ^ args ^ args >> 31) + (value ^ value >> 29) * 0x165667b19e3779f9ull;
}

}  // namespace

PollTable::PollTable() : folder_(*this), assembler_(folder_) {}

void PollTable::HeldBody::Take(const trace::BodyView& body) {
  size = body.size;
  xxh3 = body.xxh3;
  all_zero = body.all_zero;
  kept = static_cast<uint8_t>(body.data.size());
  if (kept == 4) {
    std::memcpy(bytes.data(), body.data.data(), 4);
  } else if (kept == 8) {
    std::memcpy(bytes.data(), body.data.data(), 8);
  } else {
    std::copy(body.data.begin(), body.data.end(), bytes.begin());
  }
}

trace::BodyView PollTable::HeldBody::View() const {
  trace::BodyView out;
  out.size = size;
  out.xxh3 = xxh3;
  out.all_zero = all_zero;
  out.data = std::span(bytes).first(kept);
  return out;
}

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
    if (held_total_ > given_ && !last.answered && last.call == record.call && small) {
      HoldReply(last, record);
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
  const uint64_t hash = HashOf(r);
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
  held.call = record.call;
  held.time_ns = record.time_ns;
  held.offset = record.offset;
  held.after_damage = record.after_damage;
  held.header = record.request.header;
  held.payload.Take(record.request.payload);
  held.answered = false;
}

void PollTable::HoldReply(Held& held, const trace::Record& record) {
  const trace::ReplyView& reply = record.reply;
  held.answered = true;
  held.reply_ns = record.time_ns;
  held.reply_offset = record.offset;
  held.reply_after_damage = record.after_damage;
  held.reply = reply.reply;
  held.descriptors = reply.descriptors;
  held.control_truncated = reply.control_truncated;
  held.latency_ns = reply.latency_ns;
  held.body.Take(reply.body);
}

void PollTable::Start() {
  const uint64_t first = std::max(given_, held_total_ > kHeld ? held_total_ - kHeld : 0);
  trace::Record record;
  for (uint64_t i = first; i < held_total_; i++) {
    const Held& held = held_[i % kHeld];
    record.kind = trace::Record::Kind::kRequest;
    record.call = held.call;
    record.time_ns = held.time_ns;
    record.offset = held.offset;
    record.after_damage = held.after_damage;
    record.request.header = held.header;
    record.request.payload = held.payload.View();
    assembler_.Add(record);
    if (!held.answered) continue;
    record.kind = trace::Record::Kind::kReply;
    record.time_ns = held.reply_ns;
    record.offset = held.reply_offset;
    record.after_damage = held.reply_after_damage;
    record.reply.reply = held.reply;
    record.reply.descriptors = held.descriptors;
    record.reply.control_truncated = held.control_truncated;
    record.reply.latency_ns = held.latency_ns;
    record.reply.body = held.body.View();
    assembler_.Add(record);
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
