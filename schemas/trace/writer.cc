#include "schemas/trace/writer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>

#include "schemas/trace/encode.h"
#include "schemas/trace/fold.h"
#include "schemas/trace/ops.h"
#include "schemas/trace/packet_out.h"
#include "schemas/trace/run.h"
#include "schemas/trace/text.h"
#include "schemas/trace/trace.pb.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using Outcome = PacketOut::Outcome;

constexpr uint64_t kMarkerEvery = 64 * 1024;
constexpr size_t kSegmentUnit = 64 * 1024;  // a multiple of every page size
constexpr size_t kMaxHeaderFields = 32;     // tag, length, dt, checksum of a packet
constexpr size_t kCauses = proto::Loss::Cause_ARRAYSIZE;

// The request packet at the end of the file, whose answer may still be written into it.
struct OpenRead {
  uint64_t call = 0;  // 0: none
  const uint8_t* begin = nullptr;
  uint8_t* data = nullptr;
  uint8_t* latency = nullptr;
  uint8_t* crc = nullptr;
  uint32_t size = 0;
  uint64_t tick = 0;
  bool synced = false;  // the disk has it, without an answer
};

size_t SegmentSize(size_t asked) {
  return (std::max(asked, kMaxPacket) + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit;
}

void DescribeSchema(google::protobuf::FileDescriptorSet& set) {
  const auto* file = proto::Trace::descriptor()->file();
  for (int i = 0; i < file->dependency_count(); i++) file->dependency(i)->CopyTo(set.add_file());
  file->CopyTo(set.add_file());
}

// Of an Op: 4 or 8 bytes. Two moves of known size; of a variable one the compiler makes a `rep
// movs`, which costs more than the rest of the packet.
void CopyValue(uint8_t* to, const uint8_t* from, uint32_t size) {
  if (size == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, 8);
  }
}

}  // namespace

class TraceWriter::Impl {
 public:
  Impl(std::unique_ptr<Sink> sink, const WriterOptions& options)
      : supply_(std::move(sink), SegmentSize(options.segment_size)),
        out_(supply_),
        fold_(options.fold),
        start_(options.start_mono_ns) {
    out_.set_patience(std::chrono::milliseconds(options.patience_ms));
  }
  ~Impl() { supply_.Stop(TakeSegment()); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> Start(proto::Header header);
  uint64_t Request(const RequestRecord& record, uint64_t now_ns);
  void Reply(const ReplyRecord& record, uint64_t now_ns);
  void Append(proto::Packet& packet, uint64_t now_ns);
  Result<void> Sync();
  Result<void> Close(proto::End& end, uint64_t now_ns);
  std::vector<LossTotal> Losses() const;

  uint64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  uint64_t position() const {
    const std::lock_guard lock(mutex_);
    return out_.position();
  }
  bool paused() const {
    const std::lock_guard lock(mutex_);
    return paused_;
  }

 private:
  struct Lost {
    uint64_t calls = 0;
    uint64_t packets = 0;
    uint64_t bytes = 0;
    uint64_t first_time = 0;
    uint64_t last_time = 0;
    bool any() const { return (calls | packets | bytes) != 0; }
  };

  uint64_t Since(uint64_t now_ns) const { return now_ns > start_ ? now_ns - start_ : 0; }

  // Every packet goes through here: whatever changes the last packet in place ends with it.
  template <typename Emit, typename Fill>
  bool Put(size_t size, uint64_t tick, const Emit& emit, const Fill& fill) {
    if (out_.Put(size, tick, emit, fill) != Outcome::kWritten) {
      Pause();
      return false;
    }
    open_.call = 0;
    run_.End();
    return true;
  }
  template <typename Emit>
  bool Put(size_t size, uint64_t tick, const Emit& emit) {
    return Put(size, tick, emit, [](uint8_t*) {});
  }

  bool Ready(uint64_t time);
  bool PutMarker(uint64_t tick);
  bool PutLosses(uint64_t time);
  bool PutProto(proto::Packet& packet, uint64_t tick);
  bool PutOp(uint32_t op, const RequestRecord& record, uint64_t tick);
  bool PutRequest(const RequestRecord& record, uint64_t tick);
  bool PutReply(const ReplyRecord& record, uint64_t tick);
  bool BeginRun(size_t period, uint64_t time);
  bool AnswerInPlace(const ReplyRecord& record, uint64_t tick);

  std::span<uint8_t> Dirty();  // with mutex_ held
  Segment TakeSegment() {
    const std::lock_guard lock(mutex_);
    const Segment segment = out_.segment();
    out_.Begin({{}, out_.position()});
    return segment;
  }
  void Pause();
  void SetPauseCause(SegmentSupply::State state);
  void CountLost(int cause, uint64_t calls, uint64_t packets, uint64_t bytes, uint64_t time);
  // Only as much of `data` as one packet holds; the rest is counted.
  std::span<const uint8_t> Clip(std::span<const uint8_t> data, uint64_t time);

  mutable std::mutex mutex_;
  SegmentSupply supply_;
  PacketOut out_;
  const bool fold_;
  const uint64_t start_;
  std::string marker_;

  uint64_t calls_ = 0;
  uint32_t connection_ = 0;
  uint64_t marker_at_ = 0;
  std::array<uint64_t, 64> request_tick_ = {};  // of call n at n % 64
  OpenRead open_;
  CallHistory history_;
  RepeatRun run_;

  bool closed_ = false;
  bool paused_ = false;
  int pause_cause_ = 0;
  std::string pause_detail_;
  bool have_lost_ = false;
  std::array<Lost, kCauses> lost_ = {};  // not yet in a Loss packet
  std::array<Lost, kCauses> totals_ = {};

  uint64_t synced_ = 0;  // file offset: what stands before it is on the disk (0: Sync() not used)
};

Result<void> TraceWriter::Impl::Start(proto::Header header) {
  Result<Segment> first = supply_.First();
  if (!first) return tl::unexpected(first.error());
  out_.Begin(*first);

  std::random_device random;
  marker_.resize(16);
  for (char& c : marker_) c = static_cast<char>(random());
  header.set_magic("TinyGPU RPC trace");
  header.set_version(1);
  header.set_marker(marker_);
  header.set_tick_ns(kTickNs);
  header.set_start_mono_ns(start_);
  if (!header.has_schema()) DescribeSchema(*header.mutable_schema());
  proto::Packet packet;
  *packet.mutable_header() = std::move(header);
  MakeUtf8(packet);
  if (packet.ByteSizeLong() > kMaxPacket - kMaxHeaderFields)
    return Fail(Error::Code::kUsage, "the trace's header is too large for a packet");
  if (!PutProto(packet, 0) || !PutMarker(0))
    return Fail(Error::Code::kNoSpace, "no room for the trace's header: " + pause_detail_);
  return {};
}

// ---- records --------------------------------------------------------------------------------

uint64_t TraceWriter::Impl::Request(const RequestRecord& record, uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const uint64_t call = calls_ + 1;
  const auto counted = [&] { return calls_ = call; };  // markers before its packet do not count it
  if (closed_) return counted();
  const uint64_t time = Since(now_ns);
  const uint64_t tick = time / kTickNs;
  request_tick_[call % request_tick_.size()] = tick;

  if (run_.active()) {
    if (run_.Continue(record, time)) return counted();
    run_.End();
  } else if (fold_) {
    const size_t period = history_.PeriodFor(record);
    if (period != 0 && BeginRun(period, time)) return counted();
  }

  uint32_t op = OpFor(record.header);
  if (op != 0) {
    const bool write = !FindOp(op)->read;
    const size_t payload = write ? record.header.arg1 : 0;
    if (record.payload.size != payload || record.payload.data.size() != payload ||
        record.truncated || !record.injected.empty() || !record.refused.empty())
      op = 0;
  }
  bool written = Ready(time);
  counted();
  written = written && (op != 0 ? PutOp(op, record, tick) : PutRequest(record, tick));
  if (!written) {
    CountLost(pause_cause_, 1, 1, op != 0 ? 24 : 64 + record.payload.data.size(), time);
    history_.Clear();
  } else if (fold_) {
    history_.OnRequest(record);
  }
  return call;
}

void TraceWriter::Impl::Reply(const ReplyRecord& record, uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const uint64_t time = Since(now_ns);
  const uint64_t tick = time / kTickNs;
  const bool newest = record.call == calls_;

  if (newest && run_.active()) {
    const uint64_t asked = request_tick_[record.call % request_tick_.size()];
    if (run_.Answer(record, std::max<uint64_t>(tick - std::min(asked, tick), 1))) return;
  }
  if (record.call == open_.call && open_.call != 0 && AnswerInPlace(record, tick)) {
    if (fold_) history_.OnReply(record, newest);
    return;
  }
  run_.End();
  if (!Ready(time) || !PutReply(record, tick)) {
    CountLost(pause_cause_, 0, 1, 40 + record.body.data.size(), time);
    history_.Clear();
  } else if (fold_) {
    history_.OnReply(record, newest);
  }
}

void TraceWriter::Impl::Append(proto::Packet& packet, uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const uint64_t time = Since(now_ns);
  if (packet.has_event() && packet.event().kind() == proto::SessionEvent::CONNECT)
    connection_ = packet.event().connection();
  if (packet.has_loss() && proto::Loss::Cause_IsValid(packet.loss().cause())) {
    Lost& total = totals_[packet.loss().cause()];
    total.calls += packet.loss().calls();
    total.packets += packet.loss().packets();
    total.bytes += packet.loss().bytes();
  }
  history_.Clear();
  MakeUtf8(packet);
  packet.clear_crc32c();
  packet.clear_dt();
  const size_t size = packet.ByteSizeLong();
  if (size > kMaxPacket - kMaxHeaderFields) {
    CountLost(proto::Loss::TOO_LARGE, 0, 1, size, time);
    return;
  }
  const bool ready = Ready(time);
  if (packet.has_request() || packet.op() != proto::OP_NONE) calls_++;
  if (!ready || !PutProto(packet, time / kTickNs)) CountLost(pause_cause_, 0, 1, size, time);
}

// ---- packets --------------------------------------------------------------------------------

bool TraceWriter::Impl::PutProto(proto::Packet& packet, uint64_t tick) {
  packet.clear_crc32c();
  packet.clear_dt();
  const size_t size = packet.ByteSizeLong();
  return Put(size, tick, [&](uint8_t* p) { packet.SerializeWithCachedSizesToArray(p); });
}

bool TraceWriter::Impl::PutOp(uint32_t op, const RequestRecord& record, uint64_t tick) {
  const OpShape& shape = *FindOp(op);
  const wire::RequestHeader& h = record.header;
  const uint32_t handle = shape.sysmem ? h.bar : 0;
  const size_t data_size = 1u + shape.size;
  size_t size = 2 + data_size + (shape.read ? 3 : 0);
  if (h.arg0 != 0) size += 1 + pb::VarintSize(h.arg0);
  if (handle != 0) size += 1 + pb::VarintSize(handle);

  uint8_t* data = nullptr;
  uint8_t* latency = nullptr;
  const auto emit = [&](uint8_t* p) {
    *p++ = pb::Key(2, pb::kVarint);
    *p++ = static_cast<uint8_t>(op);
    if (h.arg0 != 0) {
      *p++ = pb::Key(3, pb::kVarint);
      p = pb::PutVarint(p, h.arg0);
    }
    *p++ = shape.size == 4 ? pb::Key(4, pb::kI32) : pb::Key(5, pb::kI64);
    data = p;
    if (shape.read) {
      std::memset(p, 0, shape.size);
      p += shape.size;
      *p++ = pb::Key(6, pb::kVarint);
      latency = p;
      PutLatencySlot(p, 0);
      p += 2;
    } else {
      CopyValue(p, record.payload.data.data(), shape.size);
      p += shape.size;
    }
    if (handle != 0) {
      *p++ = pb::Key(14, pb::kVarint);
      pb::PutVarint(p, handle);
    }
  };
  if (!Put(size, tick, emit)) return false;
  if (shape.read && out_.in_place_body() != nullptr) {
    uint8_t* const crc_key = latency + 2 + (handle != 0 ? 1 + pb::VarintSize(handle) : 0);
    open_ = {.call = calls_,
             .begin = out_.in_place_body(),
             .data = data,
             .latency = latency,
             .crc = crc_key + 1,
             .size = shape.size,
             .tick = tick,
             .synced = false};
  }
  return true;
}

bool TraceWriter::Impl::PutRequest(const RequestRecord& record, uint64_t tick) {
  RequestRecord r = record;
  r.payload.data = Clip(r.payload.data, tick * kTickNs);
  r.injected = r.injected.substr(0, 4096);
  r.refused = r.refused.substr(0, 4096);
  SizeOut size;
  size.Message(7, [&](auto& o) { EmitRequest(o, r); });
  return Put(size.size(), tick,
             [&](uint8_t* p) { ByteOut(p).Message(7, [&](auto& o) { EmitRequest(o, r); }); });
}

bool TraceWriter::Impl::PutReply(const ReplyRecord& record, uint64_t tick) {
  ReplyRecord r = record;
  r.body.data = Clip(r.body.data, tick * kTickNs);
  r.injected = r.injected.substr(0, 4096);
  const uint64_t back = calls_ > r.call ? calls_ - r.call : 0;
  uint64_t latency = 0;
  if (back < request_tick_.size()) {
    const uint64_t asked = request_tick_[r.call % request_tick_.size()];
    latency = std::max<uint64_t>(tick - std::min(asked, tick), 1);
  }
  SizeOut size;
  size.Message(8, [&](auto& o) { EmitReply(o, r, back, latency); });
  return Put(size.size(), tick, [&](uint8_t* p) {
    ByteOut(p).Message(8, [&](auto& o) { EmitReply(o, r, back, latency); });
  });
}

// The usual answer, and nothing else, fits its request's packet.
bool TraceWriter::Impl::AnswerInPlace(const ReplyRecord& r, uint64_t tick) {
  const uint64_t latency = std::max<uint64_t>(tick - std::min(open_.tick, tick), 1);
  if (r.reply.status != 0 || r.reply.resp0 != open_.size || r.reply.resp1 != 0 ||
      r.body.size != open_.size || r.body.data.size() != open_.size || r.descriptors != 0 ||
      r.control_truncated || !r.injected.empty() || latency > kMaxSlotLatency)
    return false;
  // The disk writes sectors of 512 bytes: where the power goes between two of them, a packet that
  // it had whole must not become half an answer.
  const Segment& segment = out_.segment();
  const auto sector = [&](const uint8_t* p) {
    return (segment.offset + static_cast<uint64_t>(p - segment.bytes.data())) / 512;
  };
  if (open_.synced && sector(open_.data) != sector(open_.crc + 3)) return false;
  CopyValue(open_.data, r.body.data.data(), open_.size);
  PutLatencySlot(open_.latency, latency);
  std::atomic_signal_fence(std::memory_order_release);  // as in PutRepeatState
  StoreLe(open_.crc, Crc32c({open_.begin, open_.crc - 1}));
  open_.call = 0;
  return true;
}

bool TraceWriter::Impl::BeginRun(size_t period, uint64_t time) {
  run_.Load(history_, period, time);
  SizeOut size;
  run_.Emit(size);
  if (!Ready(time)) return false;
  // Its states change for as long as the run lasts, so it has to lie in one piece.
  if (!out_.FitsInPlace(size.size() + kMaxHeaderFields)) return false;
  const auto emit = [&](uint8_t* p) {
    ByteOut bytes(p);
    run_.Emit(bytes);
  };
  if (!Put(size.size(), time / kTickNs, emit, [&](uint8_t* end) { run_.InitStates(end); }))
    return false;
  history_.Clear();
  run_.Begin();
  return true;
}

bool TraceWriter::Impl::PutMarker(uint64_t tick) {
  out_.SetTick(tick);
  const auto emit = [&](auto& o) {
    o.Bytes(1, {reinterpret_cast<const uint8_t*>(marker_.data()), marker_.size()});
    o.Number(2, out_.tick() * kTickNs);
    o.Number(3, calls_);
    o.Number(4, connection_);
    o.Number(5, out_.packets());
  };
  SizeOut size;
  size.Message(13, emit);
  if (!Put(size.size(), tick, [&](uint8_t* p) { ByteOut(p).Message(13, emit); })) return false;
  marker_at_ = out_.position();
  return true;
}

// ---- losses ---------------------------------------------------------------------------------

// Makes the file ready for a packet at `time`: recording goes on if it had stopped, losses are
// written down, a marker if one is due. False while there is no room.
bool TraceWriter::Impl::Ready(uint64_t time) {
  if (paused_) {
    const SegmentSupply::State state = supply_.Poll(std::chrono::milliseconds(0));
    if (state == SegmentSupply::State::kFailed && pause_cause_ == proto::Loss::TOO_SLOW)
      SetPauseCause(state);
    if (state != SegmentSupply::State::kReady) return false;
    paused_ = false;
  }
  const uint64_t tick = time / kTickNs;
  if (have_lost_ && !(PutLosses(tick) && PutMarker(tick))) return false;
  return out_.position() - marker_at_ < kMarkerEvery || PutMarker(tick);
}

void TraceWriter::Impl::Pause() {
  paused_ = true;
  SetPauseCause(supply_.Poll(std::chrono::milliseconds(0)));
}

void TraceWriter::Impl::SetPauseCause(SegmentSupply::State state) {
  if (state == SegmentSupply::State::kFailed) {
    const Error error = supply_.LastError();
    pause_cause_ =
        error.code == Error::Code::kNoSpace ? proto::Loss::DISK_FULL : proto::Loss::IO_ERROR;
    pause_detail_ = error.message;
  } else {
    pause_cause_ = proto::Loss::TOO_SLOW;
  }
}

void TraceWriter::Impl::CountLost(int cause, uint64_t calls, uint64_t packets, uint64_t bytes,
                                  uint64_t time) {
  Lost& lost = lost_[cause];
  if (!lost.any()) lost.first_time = time;
  lost.last_time = time;
  have_lost_ = true;
  for (Lost* l : {&lost, &totals_[cause]}) {
    l->calls += calls;
    l->packets += packets;
    l->bytes += bytes;
  }
}

bool TraceWriter::Impl::PutLosses(uint64_t tick) {
  for (size_t cause = 0; cause < kCauses; cause++) {
    Lost& lost = lost_[cause];
    if (!lost.any()) continue;
    proto::Packet packet;
    proto::Loss& loss = *packet.mutable_loss();
    loss.set_cause(static_cast<proto::Loss::Cause>(cause));
    loss.set_calls(lost.calls);
    loss.set_packets(lost.packets);
    loss.set_bytes(lost.bytes);
    loss.set_first_time(lost.first_time);
    loss.set_last_time(lost.last_time);
    if (cause == proto::Loss::DISK_FULL || cause == proto::Loss::IO_ERROR)
      loss.set_detail(pause_detail_.substr(0, 256));
    if (!PutProto(packet, tick)) return false;
    lost = {};
  }
  have_lost_ = false;
  return true;
}

std::span<const uint8_t> TraceWriter::Impl::Clip(std::span<const uint8_t> data, uint64_t time) {
  if (data.size() <= kMaxChunk) return data;
  CountLost(proto::Loss::TOO_LARGE, 0, 0, data.size() - kMaxChunk, time);
  return data.first(kMaxChunk);
}

std::vector<LossTotal> TraceWriter::Impl::Losses() const {
  const std::lock_guard lock(mutex_);
  std::vector<LossTotal> all;
  for (size_t cause = 0; cause < kCauses; cause++) {
    const Lost& t = totals_[cause];
    if (t.any()) all.push_back({static_cast<int>(cause), t.calls, t.packets, t.bytes});
  }
  return all;
}

// ---- disk -----------------------------------------------------------------------------------

std::span<uint8_t> TraceWriter::Impl::Dirty() {
  const Segment& segment = out_.segment();
  const uint64_t begin = std::max(segment.offset, std::min(synced_, segment.end()));
  // The last packet may still change in place: next time it is dirty again.
  synced_ = out_.last();
  open_.synced = true;
  return segment.bytes.subspan(begin - segment.offset, out_.position() - begin);
}

Result<void> TraceWriter::Impl::Sync() {
  Result<void> done = supply_.Sync(mutex_, [this] { return Dirty(); });
  if (!done) {
    const std::lock_guard lock(mutex_);
    synced_ = 1;  // all of the segment again, next time
  }
  return done;
}

Result<void> TraceWriter::Impl::Close(proto::End& end, uint64_t now_ns) {
  bool sync = false;
  uint64_t size = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return {};
    const uint64_t time = Since(now_ns);
    const uint64_t tick = time / kTickNs;
    history_.Clear();
    run_.End();
    Ready(time);
    out_.UseReserve();
    end.set_calls(calls_);
    end.clear_losses();
    for (size_t cause = 0; cause < kCauses; cause++) {
      const Lost& total = totals_[cause];
      if (!total.any()) continue;
      proto::Loss& loss = *end.add_losses();
      loss.set_cause(static_cast<proto::Loss::Cause>(cause));
      loss.set_calls(total.calls);
      loss.set_packets(total.packets);
      loss.set_bytes(total.bytes);
    }
    if (have_lost_) PutLosses(tick) && PutMarker(tick);
    proto::Packet packet;
    *packet.mutable_end() = end;
    MakeUtf8(packet);
    if (!PutProto(packet, tick)) {
      proto::End small;
      small.set_reason(end.reason().substr(0, 64));
      small.set_calls(calls_);
      *packet.mutable_end() = small;
      MakeUtf8(packet);
      PutProto(packet, tick);
    }
    closed_ = true;
    sync = synced_ != 0;
    size = out_.position();
  }
  const Result<void> synced = sync ? Sync() : Result<void>();
  supply_.Stop(TakeSegment());
  const Result<void> cut = supply_.Truncate(size);
  return synced ? cut : synced;
}

// ---- TraceWriter ----------------------------------------------------------------------------

TraceWriter::TraceWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceWriter::~TraceWriter() = default;

Result<std::unique_ptr<TraceWriter>> TraceWriter::Create(std::unique_ptr<Sink> sink,
                                                         const WriterOptions& options,
                                                         proto::Header header) {
  auto impl = std::make_unique<Impl>(std::move(sink), options);
  if (Result<void> started = impl->Start(std::move(header)); !started)
    return tl::unexpected(started.error());
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(impl)));
}

uint64_t TraceWriter::Request(const RequestRecord& record, uint64_t now_ns) {
  return impl_->Request(record, now_ns);
}
void TraceWriter::Reply(const ReplyRecord& record, uint64_t now_ns) {
  impl_->Reply(record, now_ns);
}
void TraceWriter::Append(proto::Packet& packet, uint64_t now_ns) {
  impl_->Append(packet, now_ns);
}
Result<void> TraceWriter::Sync() {
  return impl_->Sync();
}
uint64_t TraceWriter::calls() const {
  return impl_->calls();
}
uint64_t TraceWriter::bytes_written() const {
  return impl_->position();
}
bool TraceWriter::paused() const {
  return impl_->paused();
}
std::vector<LossTotal> TraceWriter::losses() const {
  return impl_->Losses();
}
Result<void> TraceWriter::Close(proto::End end, uint64_t now_ns) {
  return impl_->Close(end, now_ns);
}

}  // namespace tg::trace
