#include "proxy/capture/capture.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "proxy/capture/follower.h"
#include "proxy/capture/handover.h"
#include "proxy/sysmem.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;
using std::chrono::milliseconds;

constexpr size_t kBatch = 2048;  // records worked off between two looks at the clock
// Nobody wakes the thread: the relay must not make a system call for it. It looks by itself, often
// while there is traffic.
constexpr milliseconds kAwake{1}, kDozing{20};
constexpr uint64_t kAwakeFor = 300'000'000;  // ns after the last message

}  // namespace

Result<SysmemPolicy> ParseSysmemPolicy(std::string_view text) {
  for (const SysmemPolicy policy :
       {SysmemPolicy::kNone, SysmemPolicy::kRings, SysmemPolicy::kFull}) {
    if (SysmemPolicyName(policy) == text) return policy;
  }
  return Fail(Error::Code::kUsage,
              "--sysmem takes none, rings or full, not '" + std::string(text) + "'");
}

std::string_view SysmemPolicyName(SysmemPolicy policy) {
  switch (policy) {
    case SysmemPolicy::kNone:
      return "none";
    case SysmemPolicy::kRings:
      return "rings";
    case SysmemPolicy::kFull:
      return "full";
  }
  return "";
}

class Capture::Impl {
 public:
  Impl(trace::TraceWriter& writer, CaptureOptions options)
      : writer_(writer), options_(std::move(options)), handover_(options_.handover_bytes) {
    if (!options_.say) options_.say = [](bool, const std::string&) {};
    if (!options_.clock_ns) {
      options_.clock_ns = [] {
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                         std::chrono::steady_clock::now().time_since_epoch())
                                         .count());
      };
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() { Stop(0); }

  void Stop(uint64_t patience_ms) {
    {
      const std::lock_guard lock(mutex_);
      if (!stop_) {
        stop_ = true;
        give_up_ = std::chrono::steady_clock::now() + milliseconds(patience_ms);
      }
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // ---- relay's thread ----
  Handover& handover() { return handover_; }
  SysmemPolicy policy() const { return options_.policy; }
  void AddTable(std::shared_ptr<SysmemTable> table) {
    const std::lock_guard lock(mutex_);
    tables_.push_back(std::move(table));
  }

  CaptureCounters counters() const {
    return {.doorbells = doorbells_.load(std::memory_order_relaxed),
            .bytes_stored = bytes_.load(std::memory_order_relaxed),
            .torn = torn_.load(std::memory_order_relaxed),
            .dropped_calls = dropped_.load(std::memory_order_relaxed),
            .stalls = stalls_.load(std::memory_order_relaxed),
            .stalled_since = stalled_since_.load(std::memory_order_relaxed)};
  }

 private:
  void Run();
  size_t WorkOff();
  void Handle(const Handed& record);
  void Connect(const Handed& record);
  void NoteLoss(uint64_t calls, uint64_t now);
  void Count();
  void CloseFollower(uint64_t now);

  trace::TraceWriter& writer_;
  CaptureOptions options_;
  Handover handover_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::chrono::steady_clock::time_point give_up_;
  std::deque<std::shared_ptr<SysmemTable>> tables_;

  // Capture thread only.
  std::unique_ptr<Follower> follower_;
  std::shared_ptr<SysmemTable> table_;
  uint32_t connections_ = 0;
  uint64_t last_message_ = 0;
  CaptureCounters done_;  // of followers that are gone

  std::atomic<uint64_t> doorbells_{0}, bytes_{0}, torn_{0}, dropped_{0}, stalls_{0},
      stalled_since_{0};
  std::thread thread_;  // last: it uses all of the above
};

void Capture::Impl::Count() {
  doorbells_ = done_.doorbells + (follower_ ? follower_->doorbells() : 0);
  bytes_ = done_.bytes_stored + (follower_ ? follower_->bytes_stored() : 0);
  torn_ = done_.torn + (follower_ ? follower_->torn() : 0);
  stalls_ = done_.stalls + (follower_ ? follower_->stalls() : 0);
  stalled_since_ = follower_ ? follower_->stalled_since() : 0;
}

void Capture::Impl::CloseFollower(uint64_t now) {
  if (!follower_) return;
  follower_->End(now);
  done_.doorbells += follower_->doorbells();
  done_.bytes_stored += follower_->bytes_stored();
  done_.torn += follower_->torn();
  done_.stalls += follower_->stalls();
  follower_.reset();
  table_.reset();
  Count();
}

void Capture::Impl::Connect(const Handed& record) {
  CloseFollower(record.now);
  {
    const std::lock_guard lock(mutex_);
    if (!tables_.empty()) {
      table_ = std::move(tables_.front());
      tables_.pop_front();
    }
  }
  FollowerHooks hooks;
  if (table_ && options_.policy != SysmemPolicy::kNone) {
    hooks.copy = [table = table_](uint32_t region, uint64_t offset, std::span<uint8_t> to) {
      return table->Copy(region, offset, to);
    };
  }
  hooks.append = [this](pb::Packet& packet) { writer_.Append(packet, options_.clock_ns()); };
  hooks.say = options_.say;
  follower_ = std::make_unique<Follower>(std::move(hooks), ++connections_,
                                         options_.policy == SysmemPolicy::kFull);
}

void Capture::Impl::NoteLoss(uint64_t calls, uint64_t now) {
  dropped_ += calls;
  pb::Packet packet;
  packet.mutable_loss()->set_cause(pb::Loss::LAG);
  packet.mutable_loss()->set_calls(calls);
  packet.mutable_loss()->set_detail(
      "the capture of shared memory lagged: it did not see these messages (they are in the trace)");
  writer_.Append(packet, now);
}

void Capture::Impl::Handle(const Handed& record) {
  switch (record.kind) {
    case Handed::Kind::kConnect:
      Connect(record);
      break;
    case Handed::Kind::kDisconnect:
      CloseFollower(record.now);
      break;
    default:
      if (follower_) follower_->Handle(record);
      break;
  }
}

size_t Capture::Impl::WorkOff() {
  Handed record;
  uint64_t lost = 0;
  size_t n = 0;
  while (n < kBatch && handover_.Take(record, lost)) {
    if (lost > 0) NoteLoss(lost, options_.clock_ns());
    Handle(record);
    last_message_ = record.now;
    handover_.Release();
    ++n;
  }
  return n;
}

void Capture::Impl::Run() {
  for (;;) {
    const size_t n = WorkOff();
    const uint64_t now = options_.clock_ns();
    if (follower_) {
      // While it lags, "now" is far ahead of what was seen: no message is missing, it is on its
      // way.
      follower_->Tick(n == kBatch ? last_message_ : now);
      Count();
    }
    std::unique_lock lock(mutex_);
    if (stop_ && (n == 0 || std::chrono::steady_clock::now() >= give_up_)) break;
    if (n > 0) continue;
    const bool awake = now < last_message_ + kAwakeFor;
    wake_.wait_for(lock, awake ? kAwake : kDozing, [this] { return stop_; });
  }
  if (const uint64_t lost = handover_.dropped()) NoteLoss(lost, options_.clock_ns());
  CloseFollower(options_.clock_ns());
}

Capture::Capture(trace::TraceWriter& writer, CaptureOptions options)
    : impl_(std::make_unique<Impl>(writer, std::move(options))) {}
Capture::~Capture() = default;

void Capture::OnConnect(std::shared_ptr<SysmemTable> sysmem, uint64_t now) {
  Handed record;
  record.kind = Handed::Kind::kConnect;
  record.now = now;
  impl_->AddTable(std::move(sysmem));
  impl_->handover().Put(record);
}

void Capture::OnRequest(const wire::RequestEvent& event, uint64_t call, uint64_t now) {
  // Pieces of large payloads: the model does without their content.
  if (event.kind != wire::RequestEvent::Kind::kRequest) return;
  Handed record;
  record.kind = Handed::Kind::kRequest;
  record.call = call;
  record.now = now;
  record.header = event.header;
  record.size = event.payload_size;
  if (event.complete()) record.data = event.payload;
  impl_->handover().Put(record);
}

void Capture::OnReply(const wire::ReplyEvent& event, uint64_t now) {
  const bool first = event.kind == wire::ReplyEvent::Kind::kReply;
  if (!first && event.kind != wire::ReplyEvent::Kind::kBodyChunk) return;
  // Address lists are needed whole, of other large bodies nothing is.
  const bool list = event.request.header.command == static_cast<uint8_t>(wire::Command::kMapSysmem);
  const bool wanted = list || event.body_size <= kHandedBytes;
  if (!first && !wanted) return;
  Handed record;
  record.kind = first ? Handed::Kind::kReply : Handed::Kind::kReplyChunk;
  record.call = event.request.call;
  record.now = now;
  record.header = event.request.header;
  record.reply = event.reply;
  record.size = event.body_size;
  record.offset = event.body_offset;
  std::span<const uint8_t> data = wanted ? event.body : std::span<const uint8_t>();
  do {
    record.data = data.first(std::min(data.size(), kHandedBytes));
    impl_->handover().Put(record);
    data = data.subspan(record.data.size());
    record.kind = Handed::Kind::kReplyChunk;
    record.offset += record.data.size();
  } while (!data.empty());
}

void Capture::OnRegion(const SysmemRegion& region, uint64_t call, uint64_t now) {
  std::array<uint8_t, kHandedBytes> table;
  size_t size = 0;
  for (const auto& [address, length] : region.table) {
    if (size + 16 > table.size()) break;
    StoreLe(&table[size], address);
    StoreLe(&table[size + 8], length);
    size += 16;
  }
  Handed record;
  record.kind = Handed::Kind::kRegion;
  record.call = call;
  record.now = now;
  record.header.bar = region.index;
  record.header.arg0 = region.asked;
  record.header.arg1 = region.granted;
  record.reply.resp0 = region.mapped;
  record.data = std::span(table).first(size);
  impl_->handover().Put(record);
}

void Capture::OnDisconnect(uint64_t now) {
  Handed record;
  record.kind = Handed::Kind::kDisconnect;
  record.now = now;
  impl_->handover().Put(record);
}

void Capture::OnSnapshotRequest(uint64_t now) {
  Handed record;
  record.kind = Handed::Kind::kSnapshot;
  record.now = now;
  impl_->handover().Put(record);
}

void Capture::Stop(uint64_t patience_ms) {
  impl_->Stop(patience_ms);
}
CaptureCounters Capture::counters() const {
  return impl_->counters();
}

}  // namespace tg::proxy
