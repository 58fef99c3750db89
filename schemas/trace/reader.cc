#include "schemas/trace/reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "schemas/trace/ops.h"
#include "schemas/trace/packet_view.h"
#include "schemas/trace/text.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/window.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using Bytes = std::span<const uint8_t>;

constexpr size_t kPeek = 64;  // bytes asked for at a packet's begin: all of a usual one
constexpr size_t kMaxSkipped = 1000;
constexpr std::string_view kMagic = "TinyGPU RPC trace";
// A damaged header is forgiven when a packet is found within this distance.
constexpr uint64_t kHeaderSearch = 4u << 20;

// Checking a candidate packet costs a walk over its bytes. In a sound file each byte is walked
// once; crafted bytes could make each byte the begin of another megabyte. So a reader walks at most
// kCredit bytes in vain, and kCreditPerByte more for each byte that it gets past. Small packets,
// markers among them, are free.
constexpr uint64_t kCredit = 32u << 20;
constexpr uint64_t kCreditPerByte = 8;
constexpr size_t kFreeCandidate = 96;
constexpr size_t kFollowChunk = 32 * 1024;

uint64_t AddSaturating(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

// True when `bytes`, as far as they go, could be the begin of a trace's first packet.
bool BeginsAsTrace(Bytes bytes) {
  const auto text = std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t magic = text.substr(0, kPeek).find(kMagic);
  if (magic != std::string_view::npos) return true;
  // Too short for the magic: tag, length, header's key and length, magic's key and length.
  if (bytes.size() >= 2 + 4 + 4 + kMagic.size()) return false;
  const Frame frame = ReadFrame(bytes);
  if (frame.state == Frame::State::kShort) return true;
  if (frame.state != Frame::State::kWhole) return false;
  static constexpr std::string_view kHeaderKey = "\x82\x01";
  const std::string_view key = text.substr(frame.head, kHeaderKey.size());
  return key == kHeaderKey.substr(0, key.size());
}

std::string_view WhatItLooksLike(Bytes b) {
  struct Signature {
    std::string_view bytes;
    std::string_view name;
  };
  static constexpr Signature kKnown[] = {
      {"\x28\xb5\x2f\xfd", "zstd data: decompress it first"},
      {"\x1f\x8b", "gzip data: decompress it first"},
      {"\xfd"
       "7zXZ",
       "xz data: decompress it first"},
      {"PK\x03\x04", "a zip archive"},
      {"\x7f"
       "ELF",
       "an ELF program"},
      {"\xcf\xfa\xed\xfe", "a Mach-O program"},
      {"\xd4\xc3\xb2\xa1", "a network capture (pcap)"},
      {"\x0a\x0d\x0d\x0a", "a network capture (pcapng)"},
      {"{", "JSON"},
  };
  const auto text = std::string_view(reinterpret_cast<const char*>(b.data()), b.size());
  for (const Signature& s : kKnown) {
    if (text.substr(0, s.bytes.size()) == s.bytes) return s.name;
  }
  if (std::all_of(b.begin(), b.end(), [](uint8_t c) { return c == 0; })) return "zero bytes";
  const bool printable = std::all_of(b.begin(), b.end(), [](uint8_t c) {
    return c == '\n' || c == '\r' || c == '\t' || (c >= 0x20 && c < 0x7f);
  });
  return printable ? "text" : "some other binary file";
}

}  // namespace

std::string_view EndStateText(EndState state) {
  switch (state) {
    case EndState::kOpen:
      return "not at the end yet";
    case EndState::kClean:
      return "closed cleanly";
    case EndState::kNotClosed:
      return "not closed: its writer was killed, or is still writing";
    case EndState::kTruncated:
      return "truncated inside a packet";
    case EndState::kGarbage:
      return "bytes that are no packet follow the last good one";
  }
  return "";
}

class TraceReader::Impl {
 public:
  explicit Impl(std::unique_ptr<Window> window) : window_(std::move(window)) {}

  Result<void> Begin(const std::string& name);
  bool Next(Record& record);
  void set_follow(bool follow) {
    follow_ = follow;
    ended_ = false;
    window_->set_chunk(follow ? kFollowChunk : Window::kChunk);
  }

  const proto::Header* header() const { return header_ ? header_.get() : nullptr; }
  EndState end_state() const { return end_state_; }
  uint64_t offset() const { return position_; }
  uint64_t file_size() const { return window_->FileSize(); }
  uint64_t packets() const { return packets_; }
  uint64_t calls() const { return calls_; }
  const std::vector<SkippedRange>& skipped() const { return skipped_; }
  uint64_t good_end() const { return good_end_; }

 private:
  // What stands at an offset.
  struct Look {
    enum class State : uint8_t { kGood, kZero, kCut, kBad, kNothing };
    State state = State::kNothing;
    size_t head = 0;
    size_t total = 0;
    std::string_view why;  // kCut, kBad
  };
  Look LookAt(uint64_t offset, PacketView& view);
  bool LooksGood(uint64_t offset);
  std::optional<uint64_t> Search(uint64_t from, uint64_t limit = UINT64_MAX);
  std::optional<uint64_t> FindNonZero(uint64_t from);
  bool Afford(size_t body);

  bool End(EndState state);
  bool Reread();
  void Skip(uint64_t to, std::string_view why);
  bool PassZeros();
  bool PassDamage(const Look& look);
  bool MayChange() const;

  bool Deliver(Record& record, const Look& look);
  bool DeliverOp(Record& record);
  void DeliverAnswer(Record& record);
  bool DeliverReply(Record& record);
  bool DeliverRepeat(Record& record);
  bool DeliverProto(Record& record, Bytes body);

  uint64_t TimeNs() const { return ticks_ * tick_ns_; }

  std::unique_ptr<Window> window_;
  bool follow_ = false;
  bool ended_ = false;
  bool fresh_ = false;        // the window was read anew for position_
  bool behind_seen_ = false;  // and after a packet behind position_ had been seen
  uint64_t credit_ = kCredit;
  EndState end_state_ = EndState::kOpen;

  uint64_t position_ = 0;
  uint64_t good_end_ = 0;
  uint64_t packets_ = 0;
  uint64_t calls_ = 0;
  uint64_t ticks_ = 0;
  uint64_t tick_ns_ = kTickNs;
  bool after_damage_ = false;
  bool saw_end_ = false;
  std::vector<SkippedRange> skipped_;

  std::unique_ptr<proto::Header> header_;
  std::string marker_;
  proto::Packet packet_;
  PacketView view_;

  bool have_answer_ = false;  // view_ has an answer in place that Next() gives next
  uint64_t answer_offset_ = 0;
  std::vector<RepeatedCall> pattern_;
};

// ---- what stands where ----------------------------------------------------------------------

TraceReader::Impl::Look TraceReader::Impl::LookAt(uint64_t offset, PacketView& view) {
  Look look;
  Bytes bytes = window_->At(offset, kPeek);
  if (bytes.empty()) return look;
  if (bytes[0] == 0) {
    look.state = Look::State::kZero;
    return look;
  }
  const Frame frame = ReadFrame(bytes);
  look.head = frame.head;
  look.total = frame.total();
  look.state = Look::State::kBad;
  switch (frame.state) {
    case Frame::State::kNoTag:
      look.why = "no packet begins here";
      return look;
    case Frame::State::kAbsurd:
      look.why = "a length that no packet has";
      return look;
    case Frame::State::kShort:
      break;
    case Frame::State::kWhole:
      bytes = window_->At(offset, look.total);
      if (bytes.size() < look.total) break;
      if (!Afford(frame.body)) {
        look.why = "not looked at: too much damage before it";
        return look;
      }
      const Verdict verdict = ReadPacket(bytes.subspan(frame.head, frame.body), view);
      if (verdict == Verdict::kGood) look.state = Look::State::kGood;
      look.why = VerdictText(verdict);
      return look;
  }
  look.state = Look::State::kCut;
  look.why = "a packet that runs past the end of the file";
  return look;
}

bool TraceReader::Impl::Afford(size_t body) {
  if (body <= kFreeCandidate) return true;
  if (body > credit_) return false;
  credit_ -= body;
  return true;
}

bool TraceReader::Impl::LooksGood(uint64_t offset) {
  Bytes bytes = window_->At(offset, kMaxFrameHead);
  const Frame frame = ReadFrame(bytes);
  if (frame.state != Frame::State::kWhole) return false;
  bytes = window_->At(offset, frame.total());
  if (bytes.size() < frame.total() || bytes[frame.total() - pb::kCrcField] != pb::kCrcKey)
    return false;
  PacketView view;
  return Afford(frame.body) &&
         ReadPacket(bytes.subspan(frame.head, frame.body), view) == Verdict::kGood;
}

// Where the next good packet at or behind `from` begins, but before `limit`.
std::optional<uint64_t> TraceReader::Impl::Search(uint64_t from, uint64_t limit) {
  while (from < limit) {
    const Bytes bytes = window_->At(from, 1);
    if (bytes.empty()) break;
    const void* tag = std::memchr(bytes.data(), pb::kPacketTag, bytes.size());
    const size_t gap = tag == nullptr
                           ? bytes.size()
                           : static_cast<size_t>(static_cast<const uint8_t*>(tag) - bytes.data());
    from += gap;
    credit_ += gap * kCreditPerByte;
    if (tag == nullptr) continue;
    if (from < limit && LooksGood(from)) return from;
    from++;
    credit_ += kCreditPerByte;
  }
  return std::nullopt;
}

std::optional<uint64_t> TraceReader::Impl::FindNonZero(uint64_t from) {
  for (;;) {
    const Bytes bytes = window_->At(from, 1);
    if (bytes.empty()) return std::nullopt;
    size_t i = 0;
    while (i + 8 <= bytes.size() && LoadLe<uint64_t>(&bytes[i]) == 0) i += 8;
    for (; i < bytes.size(); i++) {
      if (bytes[i] != 0) return from + i;
    }
    from += i;
  }
}

// ---- begin ----------------------------------------------------------------------------------

Result<void> TraceReader::Impl::Begin(const std::string& name) {
  const Bytes start = window_->At(0, kPeek);
  if (start.empty()) return Fail(Error::Code::kBadInput, name + " is empty");
  PacketView view;
  const Look look = LookAt(0, view);
  if (look.state == Look::State::kGood && view.kind == PacketView::kHeader) {
    auto header = std::make_unique<proto::Header>();
    if (ParseUntrusted(view.message, *header)) {
      if (header->features() != 0)
        return Fail(Error::Code::kUnsupported,
                    name + " was written by a newer version (feature bits " +
                        std::to_string(header->features()) + "): read it with that version");
      if (header->tick_ns() != 0) tick_ns_ = header->tick_ns();
      marker_ = header->marker();
      header_ = std::move(header);
    }
  }
  if (look.state == Look::State::kGood) return {};
  if (look.state != Look::State::kZero && BeginsAsTrace(window_->At(0, kPeek))) return {};
  if (Search(1, kHeaderSearch)) return {};
  const Bytes again = window_->At(0, kPeek);
  return Fail(Error::Code::kBadInput,
              name + " does not begin as a trace: it looks like " +
                  std::string(WhatItLooksLike(again.first(std::min(again.size(), kPeek)))));
}

// ---- the walk -------------------------------------------------------------------------------

bool TraceReader::Impl::End(EndState state) {
  end_state_ = state;
  ended_ = !follow_;
  fresh_ = false;
  return false;
}

// True when what the window holds may be older than the file: look again.
bool TraceReader::Impl::Reread() {
  if (fresh_ || !window_->live()) return false;
  window_->Forget();
  fresh_ = true;
  return true;
}

void TraceReader::Impl::Skip(uint64_t to, std::string_view why) {
  if (skipped_.size() < kMaxSkipped) {
    skipped_.push_back({position_, to - position_, std::string(why)});
  } else {
    SkippedRange& last = skipped_.back();
    last.size = to - last.offset;
    last.reason = "several damaged ranges, with good packets between them";
  }
  position_ = to;
  after_damage_ = true;
  fresh_ = behind_seen_ = false;
}

// Zero where a packet should begin: the end, unless something stands behind (a page that a power
// cut lost). False: the end.
bool TraceReader::Impl::PassZeros() {
  const EndState plain = saw_end_ ? EndState::kClean : EndState::kNotClosed;
  const std::optional<uint64_t> other = FindNonZero(position_ + 1);
  if (!other) return End(plain);
  if (Reread()) return true;  // the file may have grown under our eyes
  if (const std::optional<uint64_t> next = Search(*other)) {
    Skip(*next, "zero bytes where a packet should begin");
    return true;
  }
  // A packet that was being stored when its writer died has everything but its first byte.
  const bool unfinished = !saw_end_ && !FindNonZero(position_ + kMaxFrameHead + kMaxPacket);
  if (unfinished) return End(plain);
  Skip(window_->FileSize(), "no packets");
  return End(EndState::kGarbage);
}

bool TraceReader::Impl::PassDamage(const Look& look) {
  if (const std::optional<uint64_t> next = Search(position_ + 1)) {
    // While a file grows, the last packet may be in the middle of a change. It is not the last one
    // any more, so one more look is final.
    if (follow_ && !behind_seen_) {
      behind_seen_ = true;
      window_->Forget();
    } else {
      Skip(*next, look.why);
    }
    return true;
  }
  if (Reread()) return true;
  if (follow_) return End(EndState::kNotClosed);
  if (look.state == Look::State::kCut) return End(EndState::kTruncated);
  Skip(window_->FileSize(), look.why);
  return End(EndState::kGarbage);
}

// An answer may still be stored into the packet at position_, or it may count on.
bool TraceReader::Impl::MayChange() const {
  if (view_.kind == PacketView::kRepeat) return true;
  return view_.kind == PacketView::kOp && view_.latency == 0 && !view_.latency_slot.empty();
}

bool TraceReader::Impl::Next(Record& record) {
  if (have_answer_) {
    DeliverAnswer(record);
    return true;
  }
  while (!ended_) {
    Look look = LookAt(position_, view_);
    if (look.state == Look::State::kNothing || look.state == Look::State::kZero) {
      if (follow_ && Reread()) continue;
      if (!follow_ && look.state == Look::State::kZero) {
        if (!PassZeros()) return false;
        continue;
      }
      return End(saw_end_ ? EndState::kClean : EndState::kNotClosed);
    }
    if (look.state == Look::State::kGood) {
      if (follow_ && MayChange() && !behind_seen_) {
        const Bytes behind = window_->At(position_ + look.total, 1);
        if (!behind.empty() && behind[0] != 0) {
          behind_seen_ = true;
          window_->Forget();
          continue;
        }
        if (Reread()) continue;
        return End(EndState::kNotClosed);
      }
      if (Deliver(record, look)) {
        fresh_ = behind_seen_ = false;
        end_state_ = EndState::kOpen;
        return true;
      }
      look.state = Look::State::kBad;
      look.why = "a packet that makes no sense";
    }
    if (!PassDamage(look)) return false;
  }
  return false;
}

// ---- delivery -------------------------------------------------------------------------------

bool TraceReader::Impl::Deliver(Record& record, const Look& look) {
  const uint64_t ticks_before = ticks_;
  ticks_ += view_.dt;
  record.offset = position_;
  record.after_damage = after_damage_;
  record.packet = nullptr;
  bool sound = false;
  switch (view_.kind) {
    case PacketView::kOp:
      sound = DeliverOp(record);
      break;
    case PacketView::kRequest:
      record.kind = Record::Kind::kRequest;
      sound = ParseRequest(view_.message, record.request);
      if (sound) record.call = ++calls_;
      record.time_ns = TimeNs();
      break;
    case PacketView::kReply:
      sound = DeliverReply(record);
      break;
    case PacketView::kRepeat:
      sound = DeliverRepeat(record);
      break;
    default:
      sound = DeliverProto(
          record, window_->At(position_, look.total).subspan(look.head, look.total - look.head));
  }
  if (!sound) {
    ticks_ = ticks_before;
    return false;
  }
  saw_end_ = view_.kind == PacketView::kEnd;
  packets_++;
  position_ += look.total;
  credit_ += look.total * kCreditPerByte;
  if (skipped_.empty()) good_end_ = position_;
  return true;
}

bool TraceReader::Impl::DeliverOp(Record& record) {
  const OpShape* shape = FindOp(view_.op);
  if (shape == nullptr) {  // of a newer version: a call, whatever it was
    calls_++;
    record.kind = Record::Kind::kPacket;
    record.call = calls_;
    record.time_ns = TimeNs();
    packet_.Clear();
    packet_.set_op(static_cast<proto::Op>(view_.op));
    record.packet = &packet_;
    return true;
  }
  const Bytes data = shape->size == 4 ? view_.data32 : view_.data64;
  if (data.empty()) return false;
  record.kind = Record::Kind::kRequest;
  record.call = ++calls_;
  record.time_ns = TimeNs();
  record.request = {};
  wire::RequestHeader& h = record.request.header;
  h.command = static_cast<uint8_t>(shape->command);
  h.bar = shape->sysmem ? static_cast<uint32_t>(view_.handle) : shape->bar;
  h.arg0 = view_.arg0;
  h.arg1 = shape->size;
  if (!shape->read) {
    record.request.payload.size = shape->size;
    record.request.payload.data = data;
  } else if (view_.latency != 0) {
    have_answer_ = true;
    answer_offset_ = position_;
  }
  return true;
}

void TraceReader::Impl::DeliverAnswer(Record& record) {
  have_answer_ = false;
  const OpShape& shape = *FindOp(view_.op);
  record.kind = Record::Kind::kReply;
  record.call = calls_;
  record.time_ns = (ticks_ + view_.latency) * tick_ns_;
  record.offset = answer_offset_;
  record.after_damage = after_damage_;
  record.packet = nullptr;
  record.reply = {};
  record.reply.reply.resp0 = shape.size;
  record.reply.body.size = shape.size;
  record.reply.body.data = shape.size == 4 ? view_.data32 : view_.data64;
  record.reply.latency_ns = view_.latency * tick_ns_;
}

bool TraceReader::Impl::DeliverReply(Record& record) {
  ReplyFields fields;
  if (!ParseReply(view_.message, record.reply, fields)) return false;
  record.kind = Record::Kind::kReply;
  record.call = fields.calls_back < calls_ ? calls_ - fields.calls_back : 0;
  record.time_ns = TimeNs();
  record.reply.latency_ns = fields.latency * tick_ns_;
  return true;
}

bool TraceReader::Impl::DeliverRepeat(Record& record) {
  RepeatState state;
  if (!ParseRepeat(view_.message, pattern_, state)) return false;
  record.kind = Record::Kind::kRepeat;
  record.call = AddSaturating(calls_, 1);
  calls_ = AddSaturating(calls_, state.issued);
  record.pattern = pattern_;
  record.issued = state.issued;
  record.answered = state.answered;
  record.time_ns = state.first_time;
  record.last_time_ns = state.last_time;
  record.min_latency_ns = state.min_latency * tick_ns_;
  record.max_latency_ns = state.max_latency * tick_ns_;
  return true;
}

bool TraceReader::Impl::DeliverProto(Record& record, Bytes body) {
  if (!ParseUntrusted(body, packet_)) return false;
  if (view_.kind == PacketView::kHeader) {
    ticks_ = 0;
    if (!header_) header_ = std::make_unique<proto::Header>(packet_.header());
    marker_ = packet_.header().marker();
  } else if (view_.kind == PacketView::kMarker) {
    const proto::Marker& marker = packet_.marker();
    if (marker_.empty()) marker_ = marker.magic();
    // Another file's marker (its bytes inside damage here) says nothing of this one.
    if (marker.magic() == marker_) {
      ticks_ = marker.time() / tick_ns_;
      calls_ = marker.calls();
      after_damage_ = record.after_damage = false;
    }
  }
  record.kind = Record::Kind::kPacket;
  record.call = calls_;
  record.time_ns = TimeNs();
  record.packet = &packet_;
  return true;
}

// ---- TraceReader ----------------------------------------------------------------------------

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

Result<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path) {
  Result<std::unique_ptr<Window>> window = Window::Open(path);
  if (!window) return tl::unexpected(window.error());
  auto impl = std::make_unique<Impl>(std::move(*window));
  if (Result<void> begun = impl->Begin(path); !begun) return tl::unexpected(begun.error());
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

Result<std::unique_ptr<TraceReader>> TraceReader::FromBytes(std::vector<uint8_t> bytes) {
  auto impl = std::make_unique<Impl>(std::make_unique<Window>(std::move(bytes)));
  if (Result<void> begun = impl->Begin("the trace"); !begun) return tl::unexpected(begun.error());
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

bool TraceReader::Next(Record& record) {
  return impl_->Next(record);
}
void TraceReader::set_follow(bool follow) {
  impl_->set_follow(follow);
}
const proto::Header* TraceReader::header() const {
  return impl_->header();
}
EndState TraceReader::end_state() const {
  return impl_->end_state();
}
uint64_t TraceReader::offset() const {
  return impl_->offset();
}
uint64_t TraceReader::file_size() const {
  return impl_->file_size();
}
uint64_t TraceReader::packets() const {
  return impl_->packets();
}
uint64_t TraceReader::calls() const {
  return impl_->calls();
}
const std::vector<SkippedRange>& TraceReader::skipped() const {
  return impl_->skipped();
}
uint64_t TraceReader::good_end() const {
  return impl_->good_end();
}

}  // namespace tg::trace
