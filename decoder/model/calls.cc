#include "decoder/model/calls.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"

namespace tg::model {
namespace {

constexpr size_t kMaxErrorText = 4096;

Piece MakePiece(const trace::BodyView& body) {
  Piece piece;
  piece.size = body.size;
  piece.all_zero = body.all_zero;
  piece.kept = static_cast<uint8_t>(std::min(body.data.size(), kKeptBytes));
  if (piece.kept > 0) std::memcpy(piece.bytes.data(), body.data.data(), piece.kept);
  if (body.xxh3) {
    piece.hash = *body.xxh3;
  } else if (body.data.size() > kKeptBytes) {
    piece.hash = XXH3_64bits(body.data.data(), body.data.size());
  }
  if (!body.whole() && !body.streamed && !body.all_zero && !body.xxh3) {
    piece.cut = true;
    piece.came = body.data.size();
  }
  return piece;
}

Call::Extra& ExtraOf(Call& call) {
  if (!call.extra) call.extra = std::make_unique<Call::Extra>();
  return *call.extra;
}

void AddNote(Call& call, std::string_view what, std::string_view text) {
  std::string& note = ExtraOf(call).note;
  if (!note.empty()) note += "; ";
  note += what;
  if (!text.empty()) note += ": " + Printable(text, 200);
}

void SetRequest(Call& call, const trace::RequestView& request) {
  call.header = request.header;
  call.payload = MakePiece(request.payload);
  const wire::CommandInfo* info = wire::FindCommand(request.header.command);
  call.expects_reply = info == nullptr || info->reply;
  if (request.truncated) {
    call.payload.cut = true;
    call.payload.came = request.received;
    call.expects_reply = false;
    AddNote(call, "client went away inside it, not forwarded", "");
  }
  if (!request.refused.empty()) AddNote(call, "kept from the server", request.refused);
  if (!request.injected.empty()) AddNote(call, "injected", request.injected);
}

void SetReply(Call& call, const trace::ReplyView& reply) {
  call.answered = true;
  call.reply = reply.reply;
  call.body = MakePiece(reply.body);
  call.latency_ns = reply.latency_ns;
  call.descriptors = reply.descriptors;
  if (reply.reply.status != 0 && !reply.body.data.empty()) {
    ExtraOf(call).error.assign(reinterpret_cast<const char*>(reply.body.data.data()),
                               std::min(reply.body.data.size(), kMaxErrorText));
  }
  if (reply.control_truncated) AddNote(call, "descriptors lost (MSG_CTRUNC)", "");
  if (!reply.injected.empty()) AddNote(call, "answer injected", reply.injected);
}

void AppendToPiece(Piece& piece, uint64_t offset, const std::string& data) {
  if (offset != piece.kept) return;
  const size_t n = std::min(data.size(), kKeptBytes - piece.kept);
  std::memcpy(piece.bytes.data() + piece.kept, data.data(), n);
  piece.kept = static_cast<uint8_t>(piece.kept + n);
}

}  // namespace

Call Call::Clone() const {
  Call out;
  out.seq = seq;
  out.time_ns = time_ns;
  out.file_offset = file_offset;
  out.header = header;
  out.payload = payload;
  out.answered = answered;
  out.expects_reply = expects_reply;
  out.late = late;
  out.after_damage = after_damage;
  out.reply = reply;
  out.body = body;
  out.latency_ns = latency_ns;
  out.descriptors = descriptors;
  if (extra) out.extra = std::make_unique<Extra>(*extra);
  return out;
}

uint64_t Call::Hash() const {
  const auto word = [](const Piece& piece) {
    uint64_t value = piece.hash;
    for (size_t i = 0; i < piece.kept; i += 8) {
      uint64_t part = 0;
      std::memcpy(&part, piece.bytes.data() + i, std::min<size_t>(8, piece.kept - i));
      value = (value ^ part) * 0x9e3779b97f4a7c15ull;
      value ^= value >> 29;
    }
    return value;
  };
  const uint64_t words[] = {
      static_cast<uint64_t>(header.command) | static_cast<uint64_t>(reply.status) << 8 |
          static_cast<uint64_t>(answered) << 16 | static_cast<uint64_t>(late) << 17 |
          static_cast<uint64_t>(body.cut) << 18 | static_cast<uint64_t>(payload.cut) << 19 |
          static_cast<uint64_t>(header.dev) << 32,
      header.bar,
      header.arg0,
      header.arg1,
      header.arg2,
      payload.size,
      word(payload),
      reply.resp0,
      reply.resp1,
      body.size,
      word(body),
      descriptors};
  uint64_t hash = XXH3_64bits(words, sizeof words);
  if (extra && !(extra->error.empty() && extra->note.empty())) {
    hash ^= XXH3_64bits(extra->error.data(), extra->error.size());
    hash ^= XXH3_64bits(extra->note.data(), extra->note.size()) * 3;
  }
  return hash;
}

// ---- CallAssembler ---------------------------------------------------------------------------

void CallAssembler::Add(const trace::Record& r) {
  switch (r.kind) {
    case trace::Record::Kind::kRequest: {
      Waiting& w = waiting_.emplace_back();
      w.call.seq = r.call;
      w.call.time_ns = r.time_ns;
      w.call.file_offset = r.offset;
      w.call.after_damage = r.after_damage;
      SetRequest(w.call, r.request);
      w.payload_open = r.request.payload.streamed;
      w.complete = !w.call.expects_reply && !w.payload_open;
      Drain();
      return;
    }
    case trace::Record::Kind::kReply:
      OnReply(r);
      return;
    case trace::Record::Kind::kRepeat:
      OnRepeat(r);
      return;
    case trace::Record::Kind::kPacket:
      if (r.packet && r.packet->has_chunk()) OnChunk(r);
      return;
  }
}

void CallAssembler::OnReply(const trace::Record& r) {
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& w) { return w.call.seq == r.call; });
  if (it == waiting_.end()) {
    // Its request was given out before, or lies in a damaged part.
    Call late;
    late.seq = r.call;
    late.time_ns = r.time_ns;
    late.file_offset = r.offset;
    late.after_damage = r.after_damage;
    late.late = true;
    late.expects_reply = true;
    SetReply(late, r.reply);
    out_.OnCall(std::move(late));
    return;
  }
  SetReply(it->call, r.reply);
  it->body_open = r.reply.body.streamed;
  it->complete = !it->body_open && !it->payload_open;
  Drain();
}

void CallAssembler::OnChunk(const trace::Record& r) {
  const auto& chunk = r.packet->chunk();
  if (chunk.calls_back() > r.call) return;
  const uint64_t seq = r.call - chunk.calls_back();
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& w) { return w.call.seq == seq; });
  if (it == waiting_.end()) return;
  Call& call = it->call;
  Piece& piece = chunk.of_reply() ? call.body : call.payload;
  AppendToPiece(piece, chunk.offset(), chunk.data());
  if (chunk.has_xxh3()) piece.hash = chunk.xxh3();
  if (chunk.all_zero()) piece.all_zero = true;
  if (chunk.of_reply() && call.reply.status != 0) {
    std::string& text = ExtraOf(call).error;
    if (text.size() == chunk.offset() && text.size() < kMaxErrorText)
      text += chunk.data().substr(0, kMaxErrorText - text.size());
  }
  const uint64_t came =
      std::max(chunk.received(), SaturatingAdd(chunk.offset(), chunk.data().size()));
  if (!chunk.last() && came < piece.size) return;
  if (came < piece.size) {
    piece.cut = true;
    piece.came = came;
  }
  (chunk.of_reply() ? it->body_open : it->payload_open) = false;
  it->complete = !it->body_open && !it->payload_open && (call.answered || !call.expects_reply);
  Drain();
}

void CallAssembler::OnRepeat(const trace::Record& r) {
  if (r.pattern.empty() || r.issued == 0) return;
  Flush();
  const size_t period = std::min(r.pattern.size(), kMaxPeriod);
  const auto make_call = [&](uint64_t index, bool answered) {
    const trace::RepeatedCall& from = r.pattern[index % period];
    Call call;
    call.seq = SaturatingAdd(r.call, index);
    call.time_ns = index < period ? r.time_ns : std::max(r.time_ns, r.last_time_ns);
    call.file_offset = r.offset;
    call.after_damage = r.after_damage;
    SetRequest(call, from.request);
    if (from.reply && answered) {
      SetReply(call, *from.reply);
      call.latency_ns = r.min_latency_ns;
    }
    return call;
  };

  uint64_t to_answer = 0;
  for (size_t i = 0; i < period; i++) {
    if (r.pattern[i].reply)
      to_answer = SaturatingAdd(to_answer, r.issued / period + (i < r.issued % period ? 1 : 0));
  }
  // The newest calls may have no answer yet, or another one than the pattern's, which follows as a
  // record of its own: they are calls like any other.
  uint64_t missing = to_answer > r.answered ? to_answer - r.answered : 0;
  uint64_t in_run = r.issued;
  while (missing > 0 && in_run > 0 && r.issued - in_run < kMaxWaiting) {
    in_run--;
    if (r.pattern[in_run % period].reply) missing--;
  }
  if (in_run > 0) {
    CallRun run;
    for (size_t i = 0; i < std::min<uint64_t>(period, in_run); i++)
      run.pattern.push_back(make_call(i, true));
    run.count = in_run;
    run.first_seq = r.call;
    run.last_seq = SaturatingAdd(r.call, in_run - 1);
    run.first_ns = r.time_ns;
    run.last_ns = std::max(r.time_ns, r.last_time_ns);
    run.min_latency_ns = r.min_latency_ns;
    run.max_latency_ns = r.max_latency_ns;
    run.unanswered = missing;
    if (run.count == 1)
      out_.OnCall(std::move(run.pattern.front()));
    else
      out_.OnRun(std::move(run));
  }
  for (uint64_t index = in_run; index < r.issued; index++) {
    Waiting w;
    w.call = make_call(index, false);
    w.complete = !w.call.expects_reply;
    waiting_.push_back(std::move(w));
  }
  Drain();
}

void CallAssembler::Drain() {
  size_t done = 0;
  while (done < waiting_.size() &&
         (waiting_[done].complete || waiting_.size() - done > kMaxWaiting))
    out_.OnCall(std::move(waiting_[done++].call));
  if (done == waiting_.size())
    waiting_.clear();
  else if (done > 0)
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
}

void CallAssembler::Flush() {
  for (Waiting& w : waiting_) {
    if (w.body_open) {
      w.call.body.cut = true;
      w.call.body.came = w.call.body.kept;
    }
    out_.OnCall(std::move(w.call));
  }
  waiting_.clear();
}

// ---- CallFolder ------------------------------------------------------------------------------

void CallFolder::OnCall(Call&& call) {
  const uint64_t hash = call.Hash();
  if (in_run_) {
    if (hash == run_hashes_[place_]) {
      Extend(call);
      return;
    }
    EndRun();
  }
  Held& newest = held(held_++);
  newest.call = std::move(call);
  newest.hash = hash;
  size_t period = 0;
  for (size_t p = kMaxPeriod; p > 0; p--) {
    matches_[p] = held_ > p && held(held_ - 1 - p).hash == hash ? matches_[p] + 1 : 0;
    if (matches_[p] >= p * (kFoldRounds - 1)) period = p;
  }
  if (period > 0)
    StartRun(period);
  else if (held_ > kFoldWindow)
    EmitFront();
}

void CallFolder::StartRun(size_t period) {
  while (held_ > matches_[period] + period) EmitFront();
  std::vector<Call> none;
  run_hashes_.assign(period, 0);
  BeginRounds(none, run_hashes_);
}

// What is held and then `more` are the first calls of a run with `more_hashes.size()` in a round.
// Counts the held ones.
void CallFolder::BeginRounds(std::vector<Call>& more, const std::vector<uint64_t>& more_hashes) {
  const size_t period = more_hashes.size(), before = held_;
  CallRun run;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < period && i < before; i++) {
    run.pattern.push_back(held(i).call.Clone());
    hashes.push_back(held(i).hash);
  }
  for (size_t i = 0; hashes.size() < period && i < more.size(); i++) {
    run.pattern.push_back(std::move(more[i]));
    hashes.push_back(more_hashes[i]);
  }
  run.first_seq = run.pattern.front().seq;
  run.first_ns = run.pattern.front().time_ns;
  run_ = std::move(run);
  run_hashes_ = std::move(hashes);
  place_ = 0;
  for (size_t i = 0; i < before; i++) Extend(held(i).call);
  front_ = held_ = 0;
  matches_ = {};
  in_run_ = true;
}

void CallFolder::Extend(const Call& call) {
  run_.count++;
  if (++place_ == run_hashes_.size()) place_ = 0;
  run_.last_seq = call.seq;
  run_.last_ns = call.time_ns;
  if (call.answered && call.latency_ns) {
    run_.min_latency_ns =
        run_.min_latency_ns ? std::min(run_.min_latency_ns, call.latency_ns) : call.latency_ns;
    run_.max_latency_ns = std::max(run_.max_latency_ns, call.latency_ns);
  }
  if (call.expects_reply && !call.answered) run_.unanswered++;
}

void CallFolder::OnRun(CallRun&& repeat) {
  const size_t period = repeat.pattern.size();
  if (period == 0) return;
  std::vector<uint64_t> hashes;
  for (const Call& call : repeat.pattern) hashes.push_back(call.Hash());

  bool goes_on = in_run_ && run_hashes_.size() == period;
  for (size_t i = 0; goes_on && i < period; i++)
    goes_on = run_hashes_[(place_ + i) % period] == hashes[i];
  if (!goes_on) {
    EndRun();
    // Calls before it that stand in the file one by one belong to the run, also a part of a round:
    // then its rounds begin there.
    size_t before = 0;
    while (before < held_ && held(held_ - 1 - before).hash == hashes[period - 1 - before % period])
      before++;
    while (held_ > before) EmitFront();
    BeginRounds(repeat.pattern, hashes);
  }
  run_.count = SaturatingAdd(run_.count, repeat.count);
  place_ = (place_ + repeat.count) % period;
  run_.last_seq = repeat.last_seq;
  run_.last_ns = repeat.last_ns;
  if (repeat.min_latency_ns) {
    run_.min_latency_ns = run_.min_latency_ns ? std::min(run_.min_latency_ns, repeat.min_latency_ns)
                                              : repeat.min_latency_ns;
  }
  run_.max_latency_ns = std::max(run_.max_latency_ns, repeat.max_latency_ns);
  run_.unanswered = SaturatingAdd(run_.unanswered, repeat.unanswered);
  if (run_.unanswered) EndRun();
}

void CallFolder::EndRun() {
  if (!in_run_) return;
  in_run_ = false;
  CallRun run = std::move(run_);
  run_ = {};
  if (run.count > run.pattern.size()) {
    out_.OnRun(std::move(run));
    return;
  }
  // Less than two rounds are better read one by one.
  for (size_t i = 0; i < run.count; i++) out_.OnCall(std::move(run.pattern[i]));
}

void CallFolder::EmitFront() {
  Held& front = ring_[front_];
  front_ = (front_ + 1) & (kRing - 1);
  held_--;
  out_.OnCall(std::move(front.call));
}

void CallFolder::Flush() {
  EndRun();
  while (held_ > 0) EmitFront();
  matches_ = {};
}

}  // namespace tg::model
