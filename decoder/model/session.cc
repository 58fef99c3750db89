#include "decoder/model/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "decoder/model/session_impl.h"
#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"

namespace tg::model {

using wire::Command;
using wire::Revision;

namespace {

constexpr size_t kMaxPending = 4096;
constexpr size_t kMaxOpenBodies = 64;

bool Is(const wire::RequestHeader& header, Command command) {
  return header.command == static_cast<uint8_t>(command);
}

uint64_t BarKey(uint32_t dev, uint32_t bar) {
  return static_cast<uint64_t>(dev) << 32 | bar;
}

// The body stops early and nothing says that only its head was kept.
bool CutShort(const trace::BodyView& body) {
  return !body.whole() && !body.streamed && !body.all_zero && !body.xxh3 &&
         body.data.size() < body.size;
}

}  // namespace

SessionModel::SessionModel() : impl_(std::make_unique<Impl>()) {}
SessionModel::~SessionModel() = default;
SessionModel::SessionModel(SessionModel&&) noexcept = default;
SessionModel& SessionModel::operator=(SessionModel&&) noexcept = default;
void SessionModel::Add(const trace::Record& record) {
  impl_->Add(record);
}
void SessionModel::Finish() {
  impl_->Finish();
}
const Session& SessionModel::session() const {
  return impl_->s;
}
std::vector<Warning> SessionModel::Warnings() const {
  return impl_->Warnings();
}

SessionModel::Impl::Impl() {
  s.connections.emplace_back();
}

void SessionModel::Impl::Add(const trace::Record& r) {
  s.last_time_ns = std::max(s.last_time_ns, r.time_ns);
  if (r.after_damage && !s.damaged_after) s.damaged_after = s.last_seq;
  switch (r.kind) {
    case trace::Record::Kind::kRequest:
      OnRequest(r.request, {r.call, r.call, r.time_ns});
      break;
    case trace::Record::Kind::kReply: {
      if (r.reply.injected.starts_with(trace::kAutopsyMark)) {
        OnAutopsy(r);
        break;
      }
      if (const auto header = TakePending(r.call))
        OnReply(*header, r.reply, {r.call, r.call, r.time_ns}, r.reply.latency_ns);
      break;
    }
    case trace::Record::Kind::kRepeat:
      OnRepeat(r);
      break;
    case trace::Record::Kind::kPacket:
      OnPacket(r);
      break;
  }
}

void SessionModel::Impl::Finish() {
  if (finished) return;
  finished = true;
  for (const OpenBody& body : open_bodies) {
    if (body.of_reply && !body.error) ShortBody(body.header, body.seq, body.announced, body.got);
  }
  open_bodies.clear();
  GiveUpPending();
  s.recent_writes = recent.OldestFirst();
  UpdateFindings();
}

// ---- requests --------------------------------------------------------------------------------

void SessionModel::Impl::OnRequest(const trace::RequestView& request, const Run& run) {
  const wire::RequestHeader& header = request.header;
  s.last_seq = std::max(s.last_seq, run.last_seq);
  if (request.injected.starts_with(trace::kAutopsyMark)) {
    s.autopsy++;
    autopsy_request = header;
    autopsy_seq = run.seq;
    return;
  }
  s.calls = SaturatingAdd(s.calls, run.count);
  current().calls = SaturatingAdd(current().calls, run.count);
  CallCount& count = s.counts[header.command];
  count.calls = SaturatingAdd(count.calls, run.count);
  count.bytes = SaturatingAdd(count.bytes, SaturatingMul(request.payload.size, run.count));
  if (!request.injected.empty()) s.injected++;
  last_request = header;
  any_request = true;

  if (request.truncated) {
    Warn("B13", run.seq,
         fmt::format("the client went away inside {}: {} of {} payload bytes came; not forwarded",
                     CallText(header), Thousands(request.received),
                     Thousands(request.payload.size)));
    return;
  }
  if (!request.refused.empty()) {
    if (request.injected.empty()) s.guarded++;
    return;
  }
  CheckRange(header, run.seq);
  switch (static_cast<Command>(header.command)) {
    case Command::kMmioWrite:
    case Command::kSysmemWrite:
    case Command::kCfgWrite:
      OnWrite(request, run);
      break;
    case Command::kProbe:
      if (header.arg2 == 0x10de) s.link.OnVendor(Vendor::kNvidia);
      if (header.arg2 == 0x1002) s.link.OnVendor(Vendor::kAmd);
      break;
    case Command::kResizeBar:
      // The first message of every session: AMD asks for BAR 0, NVIDIA for BAR 1.
      if (s.link.vendor() == Vendor::kUnknown && header.bar <= 1)
        s.link.OnVendor(header.bar == 1 ? Vendor::kNvidia : Vendor::kAmd);
      break;
    case Command::kReset:
      if (header.arg0 | header.arg1 | header.arg2) facts.reset_args_seq = run.seq;
      break;
    default:
      break;
  }
  if (!facts.r2_only_seq && !wire::FindCommand(header.command, Revision::kR1)) {
    facts.r2_only_seq = run.seq;
    facts.r2_only_command = header.command;
  }
  if (request.payload.streamed) OpenPayload(header, run.seq, request.payload, false);
  const wire::CommandInfo* info = wire::FindCommand(header.command, frame_revision());
  if (info && info->reply && !run.folded) AddPending(header, run.seq, run.time_ns);
}

void SessionModel::Impl::OnWrite(const trace::RequestView& request, const Run& run) {
  const wire::RequestHeader& header = request.header;
  WriteSeen write{
      run.seq, run.last_seq, run.count, std::max(run.time_ns, run.last_time_ns), header, 0, 0};
  if (Is(header, Command::kCfgWrite)) {
    write.value = header.arg2;
    write.value_bytes = static_cast<uint8_t>(std::min<uint64_t>(header.arg1, 8));
    s.link.OnConfigWrite(header, run.last_seq);
  } else if (request.payload.size <= 8 && request.payload.whole()) {
    write.value = LittleEndian(request.payload.data);
    write.value_bytes = static_cast<uint8_t>(request.payload.size);
  }
  recent.Add(write);
  if (!Is(header, Command::kMmioWrite)) return;
  if (write.value_bytes > 0) s.link.OnWrite(header, write.value);
  if (header.bar == 2 && header.arg1 <= 8 && s.link.vendor() != Vendor::kNvidia)
    s.doorbells = SaturatingAdd(s.doorbells, run.count);
  CheckBarAddress(request, run.seq);
}

// ---- pairing ---------------------------------------------------------------------------------

void SessionModel::Impl::AddPending(const wire::RequestHeader& header, uint64_t seq,
                                    uint64_t time_ns) {
  if (pending.size() >= kMaxPending) {
    pending_forgotten++;
    return;
  }
  pending.push_back({header, seq, time_ns, false});
}

std::optional<wire::RequestHeader> SessionModel::Impl::TakePending(uint64_t seq) {
  auto it = pending.begin();
  if (it == pending.end() || it->seq != seq) {
    it = std::lower_bound(pending.begin(), pending.end(), seq,
                          [](const Pending& p, uint64_t call) { return p.seq < call; });
  }
  if (it == pending.end() || it->seq != seq || it->answered) {
    if (pending_forgotten > 0) pending_forgotten--;
    return std::nullopt;
  }
  const wire::RequestHeader header = it->header;
  it->answered = true;
  while (!pending.empty() && pending.front().answered) pending.pop_front();
  return header;
}

void SessionModel::Impl::GiveUpPending() {
  bool any = false;
  for (const Pending& p : pending) {
    if (p.answered) continue;
    any = true;
    s.unanswered_total++;
    if (s.unanswered.size() < kMaxUnanswered)
      s.unanswered.push_back({p.seq, p.time_ns, current().number, p.header});
    // serve.py leaves its loop when a posted write fails, says nothing and keeps the socket open.
    if (s.transport == Transport::kTcp && recent.newest() &&
        recent.newest()->last_seq + 1 == p.seq) {
      const WriteSeen& write = *recent.newest();
      Warn(
          "T4", p.seq,
          fmt::format("no answer to {} right after the posted write {} (record {}): serve.py stops "
                      "serving without a message when a posted write fails",
                      CallText(p.header), WriteText(write), write.last_seq));
    }
    if (Is(p.header, Command::kProbe)) ProbeNotDrained(p.header, p.seq);
  }
  s.unanswered_total = SaturatingAdd(s.unanswered_total, pending_forgotten);
  pending_forgotten = 0;
  pending.clear();
  if (any) s.suspects = recent.OldestFirst();
}

// ---- replies ---------------------------------------------------------------------------------

void SessionModel::Impl::OnReply(const wire::RequestHeader& header, const trace::ReplyView& reply,
                                 const Run& run, uint64_t max_latency_ns) {
  CallCount& count = s.counts[header.command];
  count.answered = SaturatingAdd(count.answered, run.count);
  count.bytes = SaturatingAdd(count.bytes, SaturatingMul(reply.body.size, run.count));
  if (reply.latency_ns) {
    count.min_latency_ns = std::min(count.min_latency_ns, reply.latency_ns);
    count.max_latency_ns = std::max(count.max_latency_ns, max_latency_ns);
    if (!run.folded) {
      if (!count.histogram) count.histogram = std::make_unique<LatencyHistogram>();
      count.histogram->Add(reply.latency_ns);
      count.measured++;
    }
  }
  if (!reply.injected.empty()) {  // nothing that the server or the device said
    s.injected++;
    return;
  }
  last_was_error = reply.reply.status != 0;
  if (reply.body.streamed) {
    OpenPayload(header, run.seq, reply.body, true);
    open_bodies.back().error = last_was_error;
  }
  if (last_was_error) {
    count.errors = SaturatingAdd(count.errors, run.count);
    OnError(header, reply, run);
    return;
  }
  if (CutShort(reply.body)) ShortBody(header, run.seq, reply.body.size, reply.body.data.size());
  if (reply.control_truncated)
    Warn("B12", run.seq, "descriptors were lost on the way (control data truncated, MSG_CTRUNC)");

  const ReadSeen read{header,      run.seq,           run.last_seq,    run.count,
                      run.time_ns, reply.reply.resp0, reply.latency_ns};
  switch (static_cast<Command>(header.command)) {
    case Command::kMmioRead: {
      if (reply.body.size == 0 || reply.body.size > 8 || !reply.body.whole()) break;
      ReadSeen small = read;
      small.value = LittleEndian(reply.body.data);
      s.link.OnRead(small, recent);
      break;
    }
    case Command::kCfgRead:
      s.link.OnConfigRead(read, recent);
      break;
    case Command::kMapBar:
      OnMapBar(header, reply.reply, run.seq);
      break;
    case Command::kMapSysmemFd:
    case Command::kMapSysmem:
      OnRegion(header, reply, run);
      break;
    case Command::kResizeBar:
      facts.resize_status = 0;
      facts.resize_seq = run.seq;
      if (resized.size() < kMaxBars) resized[BarKey(header.dev, header.bar)] = true;
      if (BarSeen* bar = FindBar(header.dev, header.bar)) bar->resized = true;
      break;
    case Command::kPing:
      facts.ping = reply.reply;
      facts.ping_seq = run.seq;
      break;
    case Command::kProbe:
      OnProbe(reply.reply, run.seq);
      break;
    case Command::kReset:
      if (reply.reply.resp0 | reply.reply.resp1) facts.reset_args_seq = run.seq;
      break;
    default:
      break;
  }
  if (reply.descriptors > 0 && !Is(header, Command::kMapSysmemFd)) {
    Warn("B12", run.seq,
         fmt::format("{} came with the reply to {}, which should carry none",
                     Count(reply.descriptors, "descriptor"), CallText(header)));
  }
}

// What the proxy itself read says as much of the device as what the client did.
void SessionModel::Impl::OnAutopsy(const trace::Record& r) {
  const trace::ReplyView& reply = r.reply;
  if (r.call != autopsy_seq || reply.reply.status != 0) return;
  ReadSeen read{autopsy_request, r.call, r.call, 1, r.time_ns, reply.reply.resp0, reply.latency_ns};
  if (Is(autopsy_request, Command::kCfgRead)) s.link.OnConfigRead(read, recent);
  if (!Is(autopsy_request, Command::kMmioRead) || !reply.body.whole() || reply.body.size == 0 ||
      reply.body.size > 8)
    return;
  read.value = LittleEndian(reply.body.data);
  s.link.OnRead(read, recent);
}

void SessionModel::Impl::OnError(const wire::RequestHeader& header, const trace::ReplyView& reply,
                                 const Run& run) {
  if (Is(header, Command::kResizeBar)) {
    facts.resize_status = reply.reply.status;
    facts.resize_had_text = reply.body.size > 0;
    facts.resize_seq = run.seq;
  }
  if (Is(header, Command::kMapSysmemFd) || Is(header, Command::kMapSysmem)) {
    s.sysmem_refused = SaturatingAdd(s.sysmem_refused, run.count);
    if (current().regions >= wire::kAppRegionLimit)
      s.sysmem_refused_at_cap = SaturatingAdd(s.sysmem_refused_at_cap, run.count);
  }
  if (Is(header, Command::kProbe)) ProbeNotDrained(header, run.seq);

  // The client swallows a refused RESIZE_BAR; only a text makes it worth telling.
  const bool harmless =
      (Is(header, Command::kResizeBar) || Is(header, Command::kPing)) && reply.reply.resp0 == 0;
  s.refusals_total = SaturatingAdd(s.refusals_total, run.count);
  if (!harmless) s.refusals_harmful = SaturatingAdd(s.refusals_harmful, run.count);
  const std::string_view text(reinterpret_cast<const char*>(reply.body.data.data()),
                              std::min(reply.body.data.size(), kMaxTextBytes));
  if (!s.refusals.empty()) {
    Refusal& last = s.refusals.back();
    if (last.header == header && last.text == text && last.status == reply.reply.status &&
        !reply.body.streamed) {
      last.count = SaturatingAdd(last.count, run.count);
      return;
    }
  }
  if (s.refusals.size() >= kMaxRefusals) return;
  Refusal refusal{run.seq, run.time_ns,        run.count,         current().number,
                  header,  reply.reply.status, std::string(text), reply.reply.resp0,
                  harmless};
  s.refusals.push_back(std::move(refusal));
}

void SessionModel::Impl::OnMapBar(const wire::RequestHeader& header, const wire::ReplyHeader& reply,
                                  uint64_t seq) {
  const Revision by_words = wire::RevisionFromMapBar(reply);
  if (by_words != Revision::kUndecided) {
    if (facts.map_bar_revision == Revision::kUndecided) {
      const wire::BarWords words = wire::MapBarWords(reply, by_words);
      facts.map_bar_revision = by_words;
      facts.map_bar_evidence =
          fmt::format("MAP_BAR {}: size {:#x}, addr {:#x}", header.bar, words.size, words.address);
    }
    if (facts.declared_revision != Revision::kUndecided && by_words != facts.declared_revision) {
      Warn("B15", seq,
           fmt::format("the client speaks {}, but the MAP_BAR {} reply has its {} first as {} "
                       "servers do: client and server are of different revisions",
                       facts.declared_revision == Revision::kR1 ? "R1 (26-byte frames)"
                                                                : "R2+ (33-byte frames)",
                       header.bar, by_words == Revision::kR1 ? "size" : "address",
                       by_words == Revision::kR1 ? "R1" : "R2+"));
    }
  }
  // Frames decide how the client reads the words; without that, the words themselves.
  const Revision revision = facts.declared_revision != Revision::kUndecided
                                ? facts.declared_revision
                            : by_words != Revision::kUndecided ? by_words
                                                               : Revision::kR2;
  const wire::BarWords words = wire::MapBarWords(reply, revision);
  const uint32_t index =
      header.bar >= 256 && s.transport != Transport::kTcp ? header.bar & 0xff : header.bar;
  BarSeen* bar = FindBar(header.dev, index);
  if (!bar) {
    if (s.bars.size() >= kMaxBars) return;
    s.bars.push_back({});
    bar = &s.bars.back();
    bar->dev = header.dev;
    bar->index = index;
  }
  if (words.address >= kLeastAddress) {
    lowest_bar_word = std::min(lowest_bar_word, words.address >> 12);
    highest_bar_word = std::max(highest_bar_word, words.address);
  }
  bar->size = words.size;
  bar->address = words.address;
  bar->seq = seq;
  bar->mapped++;
  bar->resized = resized.count(BarKey(header.dev, index)) > 0;
  if (header.dev == 0) s.link.OnBar(index, words.size);
  if (index == 5 && s.link.vendor() == Vendor::kUnknown) s.link.OnVendor(Vendor::kAmd);
}

void SessionModel::Impl::OnRegion(const wire::RequestHeader& header, const trace::ReplyView& reply,
                                  const Run& run) {
  const bool fd = Is(header, Command::kMapSysmemFd);
  RegionSeen region;
  region.seq = run.seq;
  region.index = static_cast<uint32_t>(reply.reply.resp1);
  region.asked = frame_revision() == Revision::kR1 ? header.arg1 : header.arg0;
  region.granted = fd ? reply.reply.resp0 : SaturatingMul(reply.reply.resp0 / 8, 4096);
  s.regions_total = SaturatingAdd(s.regions_total, run.count);
  s.sysmem_asked = SaturatingAdd(s.sysmem_asked, SaturatingMul(region.asked, run.count));
  s.sysmem_granted = SaturatingAdd(s.sysmem_granted, SaturatingMul(region.granted, run.count));
  if (s.regions.size() < kMaxRegions) s.regions.push_back(region);
  const uint64_t before = current().regions;
  current().regions = SaturatingAdd(before, run.count);
  (fd ? facts.sysmem_fd_seq : facts.sysmem_tcp_seq) = run.seq;
  if (s.transport == Transport::kUnknown) {
    s.transport = fd ? Transport::kUnix : Transport::kTcp;
    s.transport_inferred = true;
  }
  if (!fd) return;
  if (reply.descriptors != 1 && !s.transport_inferred) {
    Warn("B12", run.seq,
         fmt::format("the reply to MAP_SYSMEM_FD came with {} instead of one",
                     reply.descriptors ? Count(reply.descriptors, "descriptor")
                                       : std::string("no descriptor")));
  }
  for (const uint64_t mark : {uint64_t{112}, uint64_t{wire::kAppRegionLimit}}) {
    if (before < mark && current().regions >= mark) {
      Warn("B02", run.seq,
           fmt::format("{} shared-memory regions in use: {} is the server's fixed cap; nothing is "
                       "freed before disconnect",
                       mark, wire::kAppRegionLimit));
    }
  }
}

void SessionModel::Impl::OnProbe(const wire::ReplyHeader& reply, uint64_t seq) {
  facts.probe_ok_seq = seq;
  if (reply.resp0 == 0)
    Warn("T9", seq, "empty PROBE answer: the client makes a phantom device out of it");
}

// ---- repeats ---------------------------------------------------------------------------------

void SessionModel::Impl::OnRepeat(const trace::Record& r) {
  const uint64_t period = r.pattern.size();
  if (period == 0 || r.issued == 0) return;
  const uint64_t last = SaturatingAdd(r.call, r.issued - 1);
  s.last_seq = std::max(s.last_seq, last);
  s.last_time_ns = std::max(s.last_time_ns, r.last_time_ns);
  uint64_t to_answer = 0;
  std::array<uint64_t, 8> times{};
  const uint64_t used = std::min<uint64_t>(period, times.size());
  for (uint64_t i = 0; i < used; i++) {
    times[i] = r.issued / period + (i < r.issued % period ? 1 : 0);
    if (r.pattern[i].reply) to_answer = SaturatingAdd(to_answer, times[i]);
  }
  // Unanswered are the newest ones.
  uint64_t missing = to_answer > r.answered ? to_answer - r.answered : 0;
  std::array<uint64_t, 8> unanswered{};
  for (uint64_t back = 0; back < r.issued && back < 64 && missing > 0; back++) {
    const uint64_t i = (r.issued - 1 - back) % period;
    if (i < used && r.pattern[i].reply) {
      unanswered[i]++;
      missing--;
    }
  }
  for (uint64_t i = 0; i < used; i++) {
    if (times[i] == 0) continue;
    const uint64_t seq = SaturatingAdd(r.call, i);
    const uint64_t last_of_it = SaturatingAdd(seq, SaturatingMul(times[i] - 1, period));
    OnRequest(r.pattern[i].request, {seq, last_of_it, r.time_ns, times[i], r.last_time_ns, true});
    if (!r.pattern[i].reply) continue;
    const uint64_t answered = times[i] - std::min(times[i], unanswered[i]);
    if (answered > 0) {
      trace::ReplyView reply = *r.pattern[i].reply;
      if (r.min_latency_ns) reply.latency_ns = r.min_latency_ns;
      OnReply(r.pattern[i].request.header, reply,
              {seq, last_of_it, r.time_ns, answered, r.last_time_ns, true},
              std::max(reply.latency_ns, r.max_latency_ns));
    }
  }
  for (uint64_t back = std::min<uint64_t>(r.issued, 64); back-- > 0;) {
    const uint64_t i = (r.issued - 1 - back) % period;
    if (i >= used || !r.pattern[i].reply) continue;
    // The newest `unanswered[i]` calls of this place in the pattern.
    if (back / period < unanswered[i])
      AddPending(r.pattern[i].request.header, last - back, r.last_time_ns);
  }
  any_request = true;
  last_request = r.pattern[(r.issued - 1) % period].request.header;
}

// ---- bodies ----------------------------------------------------------------------------------

void SessionModel::Impl::OpenPayload(const wire::RequestHeader& header, uint64_t seq,
                                     const trace::BodyView& body, bool of_reply) {
  if (open_bodies.size() >= kMaxOpenBodies) open_bodies.erase(open_bodies.begin());
  open_bodies.push_back({header, seq, body.size, body.data.size(), of_reply, false});
}

void SessionModel::Impl::ShortBody(const wire::RequestHeader& header, uint64_t seq,
                                   uint64_t announced, uint64_t got) {
  if (got >= announced) return;
  std::string text = fmt::format("reply short by {}", Count(announced - got, "byte"));
  const uint64_t begin = header.arg0, end = SaturatingAdd(begin, announced);
  if (Is(header, Command::kSysmemRead)) {
    const RegionSeen* region = FindRegion(header.bar);
    const uint64_t length = region ? region->granted : SaturatingAdd(begin, got);
    text +=
        fmt::format("; region {} is {:#x} long, read {:#x}..{:#x}", header.bar, length, begin, end);
    if (!region) text += " (length as the body's end shows it)";
  } else if (Is(header, Command::kMmioRead)) {
    const BarSeen* bar = FindBar(header.dev, header.bar);
    const uint64_t length = bar ? bar->size : SaturatingAdd(begin, got);
    text +=
        fmt::format("; BAR {} is {:#x} long, read {:#x}..{:#x}", header.bar, length, begin, end);
    if (!bar) text += " (length as the body's end shows it)";
  } else {
    text += fmt::format(" of {} ({})", Thousands(announced), CallText(header));
  }
  text += "; the client waits for the rest for ever";
  s.short_replies++;
  Warn("T3", seq, std::move(text));
}

// ---- small things ----------------------------------------------------------------------------

BarSeen* SessionModel::Impl::FindBar(uint32_t dev, uint32_t index) {
  for (BarSeen& bar : s.bars) {
    if (bar.dev == dev && bar.index == index) return &bar;
  }
  return nullptr;
}

const RegionSeen* SessionModel::Impl::FindRegion(uint32_t index) const {
  for (auto it = s.regions.rbegin(); it != s.regions.rend(); ++it) {
    if (it->index == index) return &*it;
  }
  return nullptr;
}

Revision SessionModel::Impl::frame_revision() const {
  return facts.declared_revision == Revision::kR1 ? Revision::kR1 : Revision::kR2;
}

void SessionModel::Impl::Warn(std::string_view rule, uint64_t seq, std::string text) {
  auto it = warned.find(rule);
  if (it == warned.end()) it = warned.emplace(rule, 0).first;
  if (it->second++ < kMaxWarningsPerRule)
    warnings.push_back({std::string(rule), seq, std::move(text)});
}

void LatencyHistogram::Add(uint64_t ns) {
  size_t bucket = ns;
  if (ns >= 8) {
    const int octave = 63 - std::countl_zero(ns);  // >= 3
    bucket = static_cast<size_t>(octave - 2) * 8 + (ns >> (octave - 3) & 7);
  }
  count[std::min(bucket, kBuckets - 1)]++;
}

uint64_t LatencyHistogram::Quantile(double q, uint64_t total) const {
  uint64_t left = static_cast<uint64_t>(q * static_cast<double>(total));
  for (size_t i = 0; i < kBuckets; i++) {
    if (count[i] > left) {
      if (i < 8) return i;
      const int octave = static_cast<int>(i / 8) + 2;
      return (8ull + i % 8) << (octave - 3);
    }
    left -= count[i];
  }
  return 0;
}

}  // namespace tg::model
