#include "replay/serve/player.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "replay/proof.h"
#include "replay/script/format.h"
#include "replay/serve/engine.h"

namespace tg::replay {
namespace {

constexpr size_t kRecent = 32;       // calls among which a poll may repeat
constexpr size_t kLookAhead = 4096;  // steps searched for what belongs to an earlier call
constexpr uint64_t kExtraBeforeHelp = 16;
constexpr uint64_t kMadeUpAddress = 0x20'0000'0000;

// Not asked by the client of a card: the proxy's own, or answered by the server loop.
bool NotPlayed(const Call& call) {
  return call.autopsy() || IsProofRequest(call.request);
}

// Announces work to the device: AMD's doorbells are BAR 2.
bool Doorbell(const wire::RequestHeader& request) {
  return request.command == static_cast<uint8_t>(wire::Command::kMmioWrite) && request.bar == 2;
}

bool Small(const Call& call) {
  const wire::CommandInfo* info = wire::FindCommand(call.request.command);
  return info && (info->body == wire::BodyRule::kArg1 || info->payload) && call.request.arg1 <= 8;
}

bool HasPayload(const wire::RequestHeader& request) {
  const wire::CommandInfo* info = wire::FindCommand(request.command);
  return info && info->payload;
}

// Of the run's answers, which one is its call number `index`?
bool AnsweredInRun(const Run& run, uint64_t index) {
  uint64_t per_round = 0, before = 0;
  for (size_t i = 0; i < run.pattern.size(); i++) {
    if (!run.pattern[i].expects_reply) continue;
    per_round++;
    if (i < index % run.pattern.size()) before++;
  }
  return index / run.pattern.size() * per_round + before < run.answered;
}

}  // namespace

Player::Player(std::unique_ptr<Script> script, const Survey& survey, const PlayerOptions& options)
    : Player(std::move(script), survey, options, nullptr) {}

Player::Player(std::unique_ptr<Script> script, const Survey& survey, const PlayerOptions& options,
               std::unique_ptr<Engine> engine)
    : script_(std::move(script)), survey_(survey), options_(options), engine_(std::move(engine)) {
  // What stands before the first call or connection says nothing about this session.
  while (const Step* step = script_->At(0)) {
    if (step->kind == Step::Kind::kConnect || step->kind == Step::Kind::kCall ||
        step->kind == Step::Kind::kRun)
      break;
    script_->Pop();
  }
}

Player::~Player() = default;

void Player::ForgetRegions() {
  if (engine_)
    for (const auto& [index, memory] : regions_) engine_->SetRegion(index, nullptr);
  regions_.clear();
}

bool Player::RunEngine() {
  const size_t stored = engine_ ? engine_->Run() : 0;
  if (stored > 0) history_.Add(0, fmt::format("(device stores {} words and ranges)", stored));
  return stored > 0;
}

bool Player::Connect() {
  ForgetRegions();
  recent_.clear();
  extra_in_a_row_ = 0;
  in_run_ = 0;
  const Step* front = script_->At(0);
  if (!connected_ && front && front->kind != Step::Kind::kConnect) {
    connected_ = true;  // the connect event itself was not recorded
    return true;
  }
  for (; front; front = script_->At(0)) {  // what is left of a client that went early
    const bool connect = front->kind == Step::Kind::kConnect;
    if (connect) history_.Add(0, fmt::format("connection {} ({})", front->connection, front->text));
    script_->Pop();
    if (connect) {
      connected_ = true;
      return true;
    }
  }
  return false;
}

bool Player::Same(const Call& recorded, const Received& received) {
  if (recorded.truncated || recorded.request != received.request) return false;
  if (!HasPayload(recorded.request)) return true;
  return options_.map_addresses ? SamePayload(recorded.payload, received, addresses_)
                                : SamePayload(recorded.payload, received);
}

bool Player::Skippable(const Call& call) const {
  return options_.any_polls && (call.rewrite || survey_.Polled(call.request));
}

// The recorded call that this request is: the next one, or one behind calls that may be skipped.
Player::Found Player::Find(const Received& received) {
  Found found;
  uint64_t in_run = in_run_;
  for (size_t i = 0; const Step* step = script_->At(i); i++) {
    found.step = i;
    switch (step->kind) {
      case Step::Kind::kMemory:
      case Step::Kind::kRegion:
        continue;
      case Step::Kind::kGap:
        if (step->breaks) return found;
        continue;
      case Step::Kind::kConnect:
      case Step::Kind::kDisconnect:
      case Step::Kind::kRaw:
        return found;
      case Step::Kind::kCall:
        if (NotPlayed(step->call)) continue;
        if (Same(step->call, received)) {
          found.found = true;
          return found;
        }
        if (!Skippable(step->call)) return found;
        found.skipped++;
        continue;
      case Step::Kind::kRun: {
        const Run& run = *step->run;
        const uint64_t left = run.issued - in_run;
        for (uint64_t k = 0; k < std::min<uint64_t>(left, run.pattern.size()); k++) {
          const Call& call = run.pattern[(in_run + k) % run.pattern.size()];
          if (Same(call, received)) {
            found.found = true;
            found.in_run = in_run + k;
            found.skipped += k;
            return found;
          }
          if (!Skippable(call)) return found;
        }
        found.skipped += left;
        in_run = 0;
        continue;
      }
    }
  }
  return found;
}

// Drops what stands before the call and makes it the current one.
void Player::Consume(const Found& found) {
  for (size_t i = 0; i < found.step; i++) {
    Step* step = script_->At(0);
    if (step->kind == Step::Kind::kMemory && !step->done) ApplyStep(*step, Merge::kOther, false);
    if (step->kind == Step::Kind::kGap) history_.Add(0, step->text);
    script_->Pop();
  }
  if (found.step > 0) in_run_ = 0;
  if (found.skipped > 0)
    history_.Add(0, fmt::format("({} recorded polls that the client did not make)", found.skipped));
  skipped_ += found.skipped;
  const Step* step = script_->At(0);
  if (step->kind == Step::Kind::kCall) {
    current_ = script_->Take();
    current_run_.reset();
    call_ = &current_.call;
    return;
  }
  current_run_ = step->run;
  call_ = &current_run_->pattern[found.in_run % current_run_->pattern.size()];
  in_run_ = found.in_run + 1;
  if (in_run_ == current_run_->issued) {
    in_run_ = 0;
    script_->Pop();
  }
}

// A call just played that this request may be once more.
const Call* Player::Repeatable(const Received& received) const {
  if (!options_.any_polls) return nullptr;
  for (auto call = recent_.rbegin(); call != recent_.rend(); ++call) {
    const bool write = HasPayload(call->request);
    if (call->request == received.request &&
        (write ? SamePayload(call->payload, received)
               : call->answered && !call->body.cut_at && Skippable(*call)))
      return &*call;
    // Only the newest write may be repeated: an older one would undo it.
    if (write && HasPayload(received.request)) return nullptr;
  }
  return nullptr;
}

Answer Player::OnRequest(const Received& received) {
  const Found found = Find(received);
  if (found.found) {
    extra_in_a_row_ = 0;
    Consume(found);
    bool answered = call_->answered;
    uint64_t number = call_->number;
    if (current_run_) {
      answered = call_->expects_reply && AnsweredInRun(*current_run_, found.in_run);
      number = current_run_->first + found.in_run;
    }
    played_++;
    if (engine_) engine_->Follow(number);
    history_.Add(number, FormatCallText(*call_, script_->revision()));
    if (Small(*call_)) {
      recent_.push_back(*call_);
      if (recent_.size() > kRecent) recent_.pop_front();
    }
    return PlayCall(answered);
  }
  if (const Call* call = Repeatable(received)) {
    extra_++;
    RunEngine();
    // It may be waiting for something that the recording has only further on.
    if (++extra_in_a_row_ % kExtraBeforeHelp == 0) OnSilence();
    history_.Add(0, "(once more) " + FormatCallText(*call, script_->revision()));
    Answer answer;
    if (!call->expects_reply) return answer;
    answer.kind = Answer::Kind::kReply;
    answer.reply = call->reply;
    answer.body = call->body.data;
    answer.zeros = call->body.data.empty() ? call->body.size : 0;
    return answer;
  }
  return Refuse(received);
}

Answer Player::PlayCall(bool answered) {
  Answer answer;
  if (!call_->expects_reply) {
    ApplyDue();
    RunEngine();
    if (Doorbell(call_->request)) ApplyAhead();
    return answer;
  }
  if (!answered) {
    const Step* next = script_->At(0);
    const bool torn = !next && script_->reader().end_state() != trace::EndState::kClean;
    answer.kind = torn ? Answer::Kind::kOver : Answer::Kind::kSilent;
    answer.problem =
        fmt::format("call #{} {}", call_->number,
                    torn ? "is the last of the trace, which ends before its reply (" +
                               std::string(EndStateText(script_->reader().end_state())) + ")"
                         : "was never answered in the recording");
    return answer;
  }
  const Bytes& body = call_->body;
  const uint64_t came = body.cut_at.value_or(body.size);
  if (!body.came_known() || (body.cut_at && !CutByTheServer())) {
    answer.kind = Answer::Kind::kOver;
    answer.problem = fmt::format(
        "the trace does not hold the {} bytes that answered call #{}{}", body.size, call_->number,
        body.cut_at ? fmt::format(": it ends after {} of them", came) : std::string());
    return answer;
  }
  answer.kind = Answer::Kind::kReply;
  answer.reply = call_->reply;
  if (body.data.size() >= came)
    answer.body = std::span(body.data).first(static_cast<size_t>(came));
  else
    answer.zeros = came;
  if (body.cut_at)
    history_.Add(
        0, fmt::format("(the answer ends after {} of {} bytes, as recorded)", came, body.size));
  if (call_->descriptors > 0 && call_->reply.status == 0 && !MakeRegion(answer)) return answer;
  ApplyDue();
  RunEngine();
  return answer;
}

// The current call's answer was cut. Did the server (or --inject short=) stop inside it, rather
// than that the recorded client left, or the trace broke off? A client of today would wait for the
// rest.
bool Player::CutByTheServer() {
  if (!call_->injected.empty()) return true;
  for (size_t i = 0; const Step* step = script_->At(i); i++) {
    if (step->kind == Step::Kind::kMemory || step->kind == Step::Kind::kRegion) continue;
    if (step->kind == Step::Kind::kGap) return !step->breaks;
    return step->kind != Step::Kind::kDisconnect || step->text == "server";
  }
  return false;
}

// The recorded call that should come now; nullptr when there is none.
const Call* Player::Expected(std::string& why_none) {
  for (size_t i = 0;; i++) {
    const Step* step = script_->At(i);
    if (!step) {
      const trace::EndState end = script_->reader().end_state();
      why_none = end == trace::EndState::kClean
                     ? "the recording ends here"
                     : "the trace ends here (" + std::string(EndStateText(end)) + ")";
      return nullptr;
    }
    switch (step->kind) {
      case Step::Kind::kCall:
        if (NotPlayed(step->call)) continue;
        if (!step->call.truncated) return &step->call;
        why_none = fmt::format("the recorded client went away inside call #{}", step->number);
        return nullptr;
      case Step::Kind::kRun:
        return &step->run->pattern[in_run_ % step->run->pattern.size()];
      case Step::Kind::kGap:
        if (!step->breaks) continue;
        why_none = fmt::format("the trace has a gap after call #{}: {}", step->number, step->text);
        return nullptr;
      case Step::Kind::kRaw:
        why_none = fmt::format("the recorded stream lost its framing after call #{} ({})",
                               step->number, step->text);
        return nullptr;
      case Step::Kind::kConnect:
      case Step::Kind::kDisconnect:
        why_none = fmt::format("the recorded connection ends after call #{}", step->number);
        return nullptr;
      case Step::Kind::kMemory:
      case Step::Kind::kRegion:
        continue;
    }
  }
}

Answer Player::Refuse(const Received& received) {
  Answer answer;
  std::string why_none;
  const Call* expected = Expected(why_none);
  const std::string came = FormatRequest(received.request, received.payload);
  if (!expected) {
    answer.kind = Answer::Kind::kOver;
    answer.problem = why_none + "; the client sent " + came;
    return answer;
  }
  diverged_ = true;
  answer.kind = Answer::Kind::kDiverged;
  const Step* front = script_->At(0);
  const uint64_t number = front && front->kind == Step::Kind::kRun && in_run_ > 0
                              ? front->run->first + in_run_
                              : expected->number;
  answer.problem = fmt::format(
      "the client diverges from the recording at call #{}\n  expected: {}\n  actual:   {}\n  {}",
      number, FormatCallText(*expected, script_->revision()), came,
      DescribeDifference(*expected, received));
  return answer;
}

// Shared memory for the MAP_SYSMEM_FD being answered, with the addresses and contents it had. Both
// stand a little behind the call in the trace.
bool Player::MakeRegion(Answer& answer) {
  const uint32_t index = static_cast<uint32_t>(call_->reply.resp1);
  Result<SharedMemory> made = SharedMemory::Create(call_->reply.resp0);
  if (!made) {
    answer.kind = Answer::Kind::kOver;
    answer.problem = fmt::format("call #{}: {}", call_->number, made.error().message);
    return false;
  }
  if (engine_) engine_->SetRegion(index, nullptr);
  regions_.erase(index);
  SharedMemory& memory = regions_.emplace(index, std::move(*made)).first->second;
  bool table = false;
  for (size_t i = 0; i < kLookAhead; i++) {
    Step* step = script_->At(i);
    if (!step || step->kind == Step::Kind::kConnect) break;
    if (step->kind == Step::Kind::kRegion && step->number == call_->number &&
        step->region.index == index && !step->done) {
      step->done = true;
      table = !step->region.ranges.empty();
      memory.StoreTable(step->region.ranges);
    } else if (step->kind == Step::Kind::kMemory && step->memory.region == index && !step->done) {
      if (step->memory.why != Why::kMap) break;
      step->done = true;
      memory.Apply(step->memory, Merge::kAll);
    }
  }
  if (!table && options_.map_addresses) {
    memory.StoreTable({{kMadeUpAddress + next_address_, call_->reply.resp0}});
    next_address_ += (call_->reply.resp0 + 0xffff) & ~uint64_t{0xffff};
  }
  if (engine_) engine_->SetRegion(index, &memory);
  answer.descriptor = memory.fd();
  return true;
}

size_t Player::ApplyStep(Step& step, Merge merge, bool early) {
  const auto found = regions_.find(step.memory.region);
  if (found == regions_.end()) return 0;
  WordFilter may_store;
  if (engine_)
    may_store = [&](uint64_t offset, uint64_t size) {
      return !engine_->Keeps(step.memory.region, offset, size);
    };
  const size_t words = found->second.Apply(step.memory, merge, may_store);
  step.done = true;
  if (words == 0) return 0;
  if (early) early_ += words;
  history_.Add(0, fmt::format("(device writes {} words at region {}+{:#x}{})", words,
                              step.memory.region, step.memory.offset, early ? ", early" : ""));
  return words;
}

// Copies of shared memory that the trace holds at this point.
void Player::ApplyDue() {
  while (Step* step = script_->At(0)) {
    if (step->kind == Step::Kind::kMemory && !step->done)
      ApplyStep(*step, Merge::kOther, false);
    else if (step->kind != Step::Kind::kMemory && step->kind != Step::Kind::kRegion)
      return;
    script_->Pop();
  }
}

// Up to the copy made at the following doorbell: what the device did for this one.
void Player::ApplyAhead() {
  int doorbells = 0;
  for (size_t i = 0; i < kLookAhead; i++) {
    Step* step = script_->At(i);
    if (!step || step->kind == Step::Kind::kConnect) return;
    if (step->kind == Step::Kind::kCall && Doorbell(step->call.request) && ++doorbells == 2) return;
    if (step->kind == Step::Kind::kMemory && !step->done) ApplyStep(*step, Merge::kOther, true);
  }
}

// Stores the nearest recorded contents that differ from what is there, whoever changed them.
bool Player::OnSilence() {
  if (RunEngine()) return true;
  int doorbells = 0;
  size_t words = 0;
  for (size_t i = 0; i < kLookAhead; i++) {
    Step* step = script_->At(i);
    if (!step || step->kind == Step::Kind::kConnect) break;
    if (step->kind == Step::Kind::kMemory) {
      words += ApplyStep(*step, Merge::kAll, true);
      continue;
    }
    if (words > 0) break;
    if (step->kind == Step::Kind::kCall && Doorbell(step->call.request) && ++doorbells == 2) break;
  }
  return words > 0;
}

bool Player::HangsUp() {
  ApplyDue();
  const Step* step = script_->At(0);
  return step && step->kind == Step::Kind::kDisconnect && step->text == "server";
}

Verdict Player::Disconnect() {
  Verdict verdict;
  ForgetRegions();
  if (diverged_) {
    verdict.kind = Verdict::Kind::kDiverged;
    return verdict;
  }
  for (size_t i = 0; const Step* step = script_->At(i); i++) {
    uint64_t number = step->number;
    const Call* call = nullptr;
    if (step->kind == Step::Kind::kConnect || step->kind == Step::Kind::kDisconnect) break;
    if (step->kind == Step::Kind::kRaw || (step->kind == Step::Kind::kGap && step->breaks)) {
      verdict.kind = Verdict::Kind::kLacking;
      (void)Expected(verdict.text);
      return verdict;
    }
    if (step->kind == Step::Kind::kCall && !step->call.truncated && !NotPlayed(step->call) &&
        !Skippable(step->call))
      call = &step->call;
    if (step->kind == Step::Kind::kRun) {
      const Run& run = *step->run;
      const uint64_t from = i == 0 ? in_run_ : 0;
      for (uint64_t k = from; k < std::min(run.issued, from + run.pattern.size()) && !call; k++) {
        const Call& candidate = run.pattern[k % run.pattern.size()];
        if (Skippable(candidate)) continue;
        call = &candidate;
        number = run.first + k;
      }
    }
    if (!call) continue;
    verdict.kind = Verdict::Kind::kLeftEarly;
    verdict.text = fmt::format("the client left before call #{} {}", number,
                               FormatCallText(*call, script_->revision()));
    return verdict;
  }
  return verdict;
}

}  // namespace tg::replay
