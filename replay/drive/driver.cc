#include "replay/drive/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "replay/script/format.h"
#include "schemas/wire/bytes.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tg::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using wire::Command;

constexpr size_t kLookAhead = 4096;  // steps searched for what belongs to a call
constexpr size_t kMaxRound = 64;     // calls of a poll loop that may be left out at once

bool Is(const Call& call, Command command) {
  return call.request.command == static_cast<uint8_t>(command);
}
bool Doorbell(const Call& call) {
  return Is(call, Command::kMmioWrite) && call.request.bar == 2;
}

bool SmallRead(const Call& call) {
  const wire::CommandInfo* info = wire::FindCommand(call.request.command);
  return info && info->body == wire::BodyRule::kArg1 && call.request.arg1 <= 8;
}

// Requests of the recording that a server never saw from its client.
bool NotForServer(const Call& call) {
  return !call.refused.empty() || call.autopsy();
}

bool Zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

}  // namespace

Driver::Driver(std::unique_ptr<Script> script, const Survey& survey, const DeviceWords& words,
               const wire::Address& upstream, const DriverOptions& options,
               std::function<void(const std::string&)> note)
    : script_(std::move(script)),
      survey_(survey),
      words_(words),
      upstream_(upstream),
      options_(options),
      note_(std::move(note)) {}

bool Driver::Stop(Kind kind, uint64_t call, std::string text) {
  result_ = {kind, call, std::move(text)};
  return false;
}

std::string Driver::Text(const Call& call) const {
  return FormatCallText(call, script_->revision());
}

DriveResult Driver::Run() {
  bool going = true;
  while (going) {
    const Step* front = script_->At(0);
    if (!front) break;
    if (front->kind == Step::Kind::kConnect) {
      ordinal_++;
      playing_ = only_ == 0 || ordinal_ == only_;
      fd_.reset();
      regions_.clear();
      script_->Pop();
      continue;
    }
    if (ordinal_ == 0) ordinal_ = 1;  // the connect event was not recorded
    if (!playing_) {
      script_->Pop();
      continue;
    }
    Step step = script_->Take();
    switch (step.kind) {
      case Step::Kind::kCall:
        going = OnCall(step.call);
        break;
      case Step::Kind::kRun:
        going = OnRun(*step.run);
        break;
      case Step::Kind::kDisconnect:
        going = Close(step.text);
        break;
      case Step::Kind::kGap:
        if (step.breaks)
          going =
              Stop(Kind::kLacking, step.number,
                   fmt::format("the trace has a gap after call #{}: {}", step.number, step.text));
        break;
      case Step::Kind::kRaw:
        going = Stop(Kind::kLacking, step.number,
                     fmt::format("the recorded stream lost its framing after call #{} ({})",
                                 step.number, step.text));
        break;
      case Step::Kind::kMemory:
        // Stored before what follows was sent, perhaps for a doorbell that is still to come: where
        // the proxy came late to one, it found the next one's words in memory already.
        if (step.memory.why == Why::kDoorbell) StoreWords(step);
        break;
      default:
        break;
    }
  }
  fd_.reset();
  return result_;
}

bool Driver::Open() {
  if (fd_.valid()) return true;
  if (adopted_.valid()) {
    fd_ = std::move(adopted_);
    return true;
  }
  Result<UniqueFd> connected = Connect(upstream_, Deadline::InOrNever(options_.timeout));
  if (!connected) return Stop(Kind::kFailed, 0, connected.error().message);
  fd_ = std::move(*connected);
  return true;
}

bool Driver::Close(const std::string& closed_first) {
  if (closed_first == "server" && fd_.valid()) {
    uint8_t byte;
    const Transfer end = ReceiveOnce(fd_.get(), {&byte, 1}, Deadline::InOrNever(options_.settle));
    if (end.end == Transfer::End::kTimeout)
      note_("the recorded server closed the connection here; this one did not");
  }
  fd_.reset();
  regions_.clear();
  return true;
}

// Waits until the call's time has come.
bool Driver::Pace(uint64_t time_ns) {
  if (options_.speed <= 0) return true;
  if (!start_) {
    start_ = steady_clock::now();
    start_ns_ = time_ns;
  }
  const double after = static_cast<double>(time_ns - std::min(time_ns, start_ns_)) / options_.speed;
  const auto due = *start_ + std::chrono::nanoseconds(static_cast<int64_t>(std::min(after, 1e17)));
  while (steady_clock::now() < due) {
    if (Deadline::interrupt.load(std::memory_order_relaxed))
      return Stop(Kind::kInterrupted, 0, "interrupted");
    std::this_thread::sleep_for(
        std::min<steady_clock::duration>(due - steady_clock::now(), milliseconds(250)));
  }
  return true;
}

LiveReply Driver::Send(const Call& call, bool wait) {
  wire::RequestHeader request = call.request;
  const wire::CommandInfo* info = wire::FindCommand(request.command);
  if (info && info->bar_is_handle)
    if (const auto found = regions_.find(request.bar); found != regions_.end())
      request.bar = found->second.handle;
  std::vector<uint8_t> copy;
  std::span<const uint8_t> payload = call.payload.data;
  if (call.payload.data.size() != call.payload.size) {
    copy.resize(static_cast<size_t>(call.payload.size));  // zeros: checked before
    payload = copy;
  } else if (payload.size() == 8 && request.bar == 0 && !rewriter_.empty()) {
    copy.assign(payload.begin(), payload.end());
    counters_.rewritten += rewriter_.Rewrite(copy);
    payload = copy;
  }
  counters_.sent++;
  const wire::Revision revision =
      script_->revision() == wire::Revision::kR1 ? wire::Revision::kR1 : wire::Revision::kR2;
  return Exchange(fd_.get(), request, payload, revision, options_.timeout, wait);
}

bool Driver::OnRun(const replay::Run& run) {
  const uint64_t length = run.pattern.size();
  const uint64_t count = options_.exact_polls ? run.issued : std::min(run.issued, length);
  for (uint64_t i = 0; i < count; i++) {
    Call call = run.pattern[i % length];
    call.number = run.first + i;
    if (!OnCall(call)) return false;
  }
  counters_.passed += run.issued - count;
  return Pace(run.last_time_ns);
}

bool Driver::OnCall(const Call& call) {
  if (NotForServer(call)) {
    counters_.left_out++;
    return true;
  }
  if (call.truncated)
    return Stop(Kind::kLacking, call.number,
                fmt::format("the recorded client went away inside call #{}", call.number));
  if (options_.stop_at != 0 && call.number > options_.stop_at)
    return Stop(Kind::kStopped, call.number, fmt::format("stopped before call #{}", call.number));
  switch (Rule(call.request.command, options_.permission)) {
    case Ruling::kSend:
      break;
    case Ruling::kLeaveOut:
      counters_.left_out++;
      return true;
    case Ruling::kForbidden:
      return Stop(Kind::kForbidden, call.number,
                  fmt::format("call #{} {} needs {}", call.number, Text(call),
                              OptionFor(HarmOf(call.request.command))));
  }
  const wire::CommandInfo* info = wire::FindCommand(call.request.command);
  if (options_.permission.read_only && info && info->bar_is_handle &&
      !regions_.contains(call.request.bar)) {
    counters_.left_out++;  // its region was not asked for
    return true;
  }
  if (!call.payload.known() || call.payload.size > wire::kAppBulkLimit)
    return Stop(Kind::kLacking, call.number,
                fmt::format("call #{} {}: {}", call.number, Text(call),
                            call.payload.known() ? "larger than any server takes (64 MiB)"
                                                 : "its data is not in the trace"));
  if (step_ && !step_(call.number, Text(call)))
    return Stop(Kind::kStopped, call.number, fmt::format("stopped before call #{}", call.number));
  if (!Pace(call.time_ns) || !Open()) return false;

  const bool bell = Doorbell(call);
  if (bell) StoreClientWords(call);
  history_.Add(call.number, Text(call));
  const bool wait = call.expects_reply && call.answered;
  LiveReply live = Send(call, call.expects_reply);
  switch (live.end) {
    case LiveReply::End::kPosted:
      return !bell || AwaitFence(call.number);
    case LiveReply::End::kAnswered:
      break;
    case LiveReply::End::kInterrupted:
      return Stop(Kind::kInterrupted, call.number, live.problem);
    case LiveReply::End::kFailed:
      return Stop(Kind::kFailed, call.number,
                  fmt::format("call #{} {}: {}", call.number, Text(call), live.problem));
    case LiveReply::End::kSilent:
    case LiveReply::End::kClosed:
      if (!wait) {
        note_(fmt::format("call #{}: not answered, as in the recording", call.number));
        fd_.reset();
        return true;
      }
      return Stop(Kind::kSilent, call.number,
                  fmt::format("call #{} {}: {}", call.number, Text(call), live.problem));
  }
  if (!wait) {
    note_(fmt::format("call #{}: answered, but never in the recording: {}", call.number,
                      FormatReply(call.request, live.reply, live.body, script_->revision())));
    return true;
  }
  if (!CompareMemory(call, live)) return false;
  if (!call.injected.empty()) {  // the proxy had altered the recorded answer
    counters_.altered++;
    return true;
  }
  std::string difference;
  if (Compare(call, live, difference)) {
    counters_.compared++;
    return true;
  }
  if (SmallRead(call) && call.reply.status == 0 && live.reply.status == 0 &&
      !options_.permission.read_only && !options_.exact_polls)
    return Poll(call, std::move(live));
  counters_.different++;
  history_.Add(0, "  but now: " + difference);
  if (options_.permission.read_only) return true;
  return Stop(Kind::kDiverged, call.number,
              fmt::format("the server diverges from the recording at call #{}\n  {}\n  now: {}",
                          call.number, Text(call), difference));
}

bool Driver::Skippable(const Call& call) const {
  return call.rewrite || survey_.Polled(call.request);
}

// Number of steps at the front to drop so that the last of them is this read with this answer; 0 if
// there is none in the same loop.
size_t Driver::FindLaterRound(const Call& call, const LiveReply& live) {
  std::string unused;
  size_t calls = 0;
  for (size_t i = 0; calls < kMaxRound; i++) {
    const Step* step = script_->At(i);
    if (!step) return 0;
    if (step->kind == Step::Kind::kMemory || step->kind == Step::Kind::kRegion) continue;
    if (step->kind == Step::Kind::kRun) {
      for (const Call& one : step->run->pattern)
        if (!Skippable(one)) return 0;
      continue;
    }
    if (step->kind != Step::Kind::kCall || !Skippable(step->call)) return 0;
    calls++;
    if (step->call.request == call.request && step->call.answered &&
        Compare(step->call, live, unused))
      return i + 1;
  }
  return 0;
}

// The read brought another value than recorded. Perhaps not yet, or the recorded client looked more
// often before it came.
bool Driver::Poll(Call call, LiveReply live) {
  const milliseconds patience =
      survey_.Polled(call.request) ? options_.poll_timeout : options_.settle;
  const Deadline deadline = Deadline::In(patience);
  std::string difference, first;
  const auto give_up = [&](const std::string& why) {
    counters_.different++;
    return Stop(Kind::kDiverged, call.number,
                fmt::format("the server diverges from the recording at call #{}\n  {}\n  now: {}",
                            call.number, Text(call), why));
  };
  for (int round = 0;; round++) {
    if (Compare(call, live, difference)) {
      counters_.compared++;
      return true;
    }
    if (round == 0) first = difference;
    // No value to wait for any more.
    if (live.reply.status != 0) return give_up(first + "; asked again: " + difference);
    if (const size_t steps = FindLaterRound(call, live); steps > 0) {
      for (size_t i = 0; i < steps; i++) {
        if (script_->At(0)->kind == Step::Kind::kCall) counters_.passed++;
        if (script_->At(0)->kind == Step::Kind::kRun)
          counters_.passed += script_->At(0)->run->issued;
        script_->Pop();
      }
      counters_.compared++;
      return true;
    }
    if (deadline.passed()) break;
    if (round > 2) std::this_thread::sleep_for(milliseconds(1));
    counters_.repeated++;
    live = Send(call, true);
    if (live.end == LiveReply::End::kInterrupted)
      return Stop(Kind::kInterrupted, call.number, live.problem);
    if (live.end != LiveReply::End::kAnswered)
      return give_up(difference + "; asked again: " + live.problem);
  }
  return give_up(fmt::format("{}, also after {} s of asking again", difference,
                             static_cast<double>(patience.count()) / 1000));
}

bool Driver::SameBody(const Call& call, const LiveReply& live) const {
  const Bytes& recorded = call.body;
  if (recorded.size != live.body.size()) return false;
  if (recorded.all_zero) return Zero(live.body);
  const auto head = static_cast<std::ptrdiff_t>(std::min(recorded.data.size(), live.body.size()));
  if (!std::equal(recorded.data.begin(), recorded.data.begin() + head, live.body.begin()))
    return false;
  if (recorded.came_known() || !recorded.xxh3) return true;
  const uint64_t came = recorded.cut_at.value_or(recorded.size);
  return XXH3_64bits(live.body.data(), static_cast<size_t>(came)) == *recorded.xxh3;
}

bool Driver::Compare(const Call& call, const LiveReply& live, std::string& difference) {
  const wire::CommandInfo* info = wire::FindCommand(call.request.command);
  bool same = call.reply.status == live.reply.status;
  if (same && live.reply.status == 0 && info) {
    switch (info->command) {
      case Command::kMapBar:  // the address is the server's own
        same = wire::MapBarWords(call.reply, script_->revision()).size ==
               wire::MapBarWords(live.reply, script_->revision()).size;
        break;
      case Command::kMapSysmemFd:  // addresses and numbers: CompareMemory
      case Command::kMapSysmem:
        same = call.reply.resp0 == live.reply.resp0;
        break;
      case Command::kProbe:  // the list names the bus the card sits on
        same = call.reply.resp1 == live.reply.resp1;
        break;
      default:
        same = call.reply == live.reply && SameBody(call, live);
    }
  }
  if (!same) difference = FormatReply(call.request, live.reply, live.body, script_->revision());
  return same;
}

const Region* Driver::RecordedRegion(const Call& call) {
  for (size_t i = 0; i < kLookAhead; i++) {
    const Step* step = script_->At(i);
    if (!step || step->kind == Step::Kind::kConnect) return nullptr;
    if (step->kind == Step::Kind::kRegion && step->number == call.number) return &step->region;
  }
  return nullptr;
}

bool Driver::CheckAddresses(const Call& call, const std::vector<DmaRange>& recorded,
                            const std::vector<DmaRange>& live) {
  if (recorded.empty() || recorded == live || options_.addresses == AddressPolicy::kKeep)
    return true;
  if (options_.addresses == AddressPolicy::kRewrite) {
    rewriter_.Add(recorded, live);
    return true;
  }
  return Stop(
      Kind::kDiverged, call.number,
      fmt::format("call #{} {}: the server gave other DMA addresses ({:#x}, recorded {:#x}), "
                  "so recorded page-table entries would point at foreign memory. --addresses "
                  "rewrite puts the new ones into them",
                  call.number, Text(call), live.empty() ? 0 : live.front().address,
                  recorded.front().address));
}

// What a region is here and was in the recording.
bool Driver::CompareMemory(const Call& call, LiveReply& live) {
  if (call.reply.status != 0 || live.reply.status != 0) return true;
  if (Is(call, Command::kMapSysmem)) {
    regions_[static_cast<uint32_t>(call.reply.resp1)].handle =
        static_cast<uint32_t>(live.reply.resp1);
    const auto pages = [](const std::vector<uint8_t>& bytes) {
      std::vector<DmaRange> ranges;
      for (size_t i = 0; i + 8 <= bytes.size(); i += 8)
        ranges.push_back({LoadLe<uint64_t>(bytes.data() + i), AddressRewriter::kPage});
      return ranges;
    };
    return CheckAddresses(call, pages(call.body.data), pages(live.body));
  }
  if (!Is(call, Command::kMapSysmemFd) || call.descriptors == 0) return true;
  if (live.descriptors.empty())
    return Stop(
        Kind::kDiverged, call.number,
        fmt::format("call #{} {}: the reply carries no descriptor", call.number, Text(call)));
  Result<SharedMemory> mapped = SharedMemory::Map(std::move(live.descriptors[0]), live.reply.resp0);
  if (!mapped)
    return Stop(Kind::kFailed, call.number,
                fmt::format("call #{} {}: {}", call.number, Text(call), mapped.error().message));
  LiveRegion& region = regions_[static_cast<uint32_t>(call.reply.resp1)];
  region.handle = static_cast<uint32_t>(live.reply.resp1);
  region.memory = std::move(*mapped);
  const Region* recorded = RecordedRegion(call);
  return CheckAddresses(call, recorded ? recorded->ranges : std::vector<DmaRange>(),
                        region.memory->LoadTable());
}

// What the client had stored when it rang. The proxy's copy stands behind the doorbell in the
// trace, perhaps behind later ones too, and ends with the queue's write pointer. What it holds for
// later doorbells comes early then; the device does not look past the value it was given.
void Driver::StoreClientWords(const Call& doorbell) {
  const Bell* bell = words_.Find(doorbell.number);
  const bool to_pointer = bell && bell->wptr;
  bool next_bell = false;
  for (size_t i = 0;; i++) {
    Step* step = script_->At(i);
    if (!step || step->kind == Step::Kind::kConnect) return;
    if (step->kind == Step::Kind::kCall && Doorbell(step->call)) next_bell = true;
    if (next_bell && !to_pointer) return;
    if (step->kind != Step::Kind::kMemory) continue;
    const Memory& memory = step->memory;
    if (memory.why != Why::kDoorbell && memory.why != Why::kUnknown && !to_pointer) continue;
    StoreWords(*step);
    if (!to_pointer || memory.region != bell->wptr->region || memory.offset > bell->wptr->offset ||
        bell->wptr->offset - memory.offset + 8 > memory.data.size())
      continue;
    const size_t at = static_cast<size_t>(bell->wptr->offset - memory.offset);
    if (LoadLe<uint64_t>(memory.data.data() + at) >= bell->value) return;
  }
}

// Once, and but for words that the device writes.
void Driver::StoreWords(Step& step) {
  const Memory& memory = step.memory;
  const auto found = regions_.find(memory.region);
  if (step.done || found == regions_.end() || !found->second.memory) return;
  step.done = true;
  const uint32_t session = ordinal_ - 1;
  counters_.words +=
      found->second.memory->Apply(memory, Merge::kAll, [&](uint64_t offset, uint64_t size) {
        return !words_.Owns(session, memory.region, offset, size);
      });
}

// Waits for the fence of what the doorbell announced, if the recording saw it. When it does not
// come the run goes on: what depends on it will differ.
bool Driver::AwaitFence(uint64_t call) {
  const Bell* bell = words_.Find(call);
  if (!bell || !bell->retired || bell->fences.empty()) return true;
  const FencePlace& fence = bell->fences.back();
  const auto found = regions_.find(fence.region);
  if (found == regions_.end() || !found->second.memory) return true;
  const std::span<uint8_t> bytes = found->second.memory->bytes();
  if (fence.offset + fence.bytes > bytes.size()) return true;
  const Deadline deadline = Deadline::In(options_.settle);
  for (int round = 0;; round++) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + fence.offset, fence.bytes);
    if (value >= fence.value) {
      counters_.fences++;
      return true;
    }
    if (Deadline::interrupt.load(std::memory_order_relaxed))
      return Stop(Kind::kInterrupted, call, "interrupted");
    if (deadline.passed()) {
      const std::string text = fmt::format(
          "{}: fence {:#x} of doorbell #{} is not there after {} ms (region {}+{:#x} "
          "holds {:#x})",
          bell->queue, fence.value, call, options_.settle.count(), fence.region, fence.offset,
          value);
      history_.Add(0, text);
      note_(text);
      return true;
    }
    std::this_thread::sleep_for(milliseconds(round < 20 ? 0 : 1));
  }
}

}  // namespace tg::replay
