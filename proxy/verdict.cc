#include "proxy/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "decoder/explain/observation.h"
#include "schemas/trace/reader.h"

namespace tg::proxy {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kMaxShadow = 16u << 20;
constexpr int kBatch = 4096;  // records between two looks at the clock
constexpr milliseconds kPause{20};

// A path as a shell takes it.
std::string Quoted(const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
           c == '.' || c == '_' || c == '-' || c == '+' || c == ',';
  });
  if (plain && !path.empty()) return path;
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

class VerdictTeller::Impl {
 public:
  Impl(std::string trace, LogFn log, VerdictOptions options)
      : trace_(std::move(trace)), log_(std::move(log)), options_(options) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void ClientGone() {
    const std::lock_guard lock(mutex_);
    asked_++;
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    wake_.notify_all();
  }

  void TraceClosed() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    // What the thread did not come to, or what came after it looked.
    if (asked_ > told_) Tell(asked_);
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || asked_ > told_; });
      if (stop_) return;
      const uint64_t asked = asked_;
      lock.unlock();
      Tell(asked);
      lock.lock();
    }
  }

  bool Stopping() {
    const std::lock_guard lock(mutex_);
    return stop_ && !closed_;
  }
  bool Closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void Tell(uint64_t asked) {
    if (!gave_up_ && !Read()) return;
    told_ = asked;
    if (gave_up_) {
      if (!said_so_)
        log_(LogLevel::kInfo, fmt::format("the trace is too long for a verdict on the spot; see: "
                                          "rpcdecode {}",
                                          Quoted(trace_)));
      said_so_ = true;
      return;
    }
    const model::Session& session = seen_->session();
    if (session.calls == calls_told_) return;
    calls_told_ = session.calls;
    Say(session);
  }

  void Say(const model::Session& session) {
    explain::Observation::File file;
    file.whole = reader_->skipped().empty();
    if (!file.whole) file.problem = "parts of the trace cannot be read";
    for (const model::LossSeen& loss : session.losses) file.lost_calls += loss.calls + loss.packets;
    const explain::Explanation explanation = seen_->ExplainIt(file);
    const explain::Finding& verdict = explanation.verdict();
    const bool well = verdict.kind == "healthy" || verdict.kind == "unknown";
    const LogLevel level = well ? LogLevel::kInfo : LogLevel::kWarn;
    log_(level,
         fmt::format("verdict: {}: {} ({} confidence)", Printable(verdict.kind),
                     Printable(verdict.summary), explain::ConfidenceWord(verdict.confidence)));
    if (session.injected + session.guarded > 0)
      log_(level,
           fmt::format("not the device alone: this proxy altered or kept {} messages, as its "
                       "options say",
                       session.injected + session.guarded));
    if (const std::string advice = explain::AdviceText(verdict); !advice.empty())
      log_(level, "advice: " + Printable(advice, 1000));
    log_(level, "more: rpcdecode " + Quoted(trace_));
  }

  // Reads until nothing new comes. False: stopped before that, and nobody asks any more.
  bool Read() {
    if (!reader_) {
      auto reader = trace::TraceReader::Open(trace_);
      if (!reader) {
        gave_up_ = said_so_ = true;
        log_(LogLevel::kWarn, "no verdict: " + reader.error().message);
        return true;
      }
      reader_ = std::move(*reader);
      seen_ = std::make_unique<explain::Observation>(
          model::DeviceOptions{.dev = std::nullopt, .max_shadow_bytes = kMaxShadow});
    }
    const auto give_up = Clock::now() + milliseconds(options_.budget_ms);
    auto quiet_since = Clock::now();
    trace::Record record;
    for (;;) {
      const bool closed = Closed();
      reader_->set_follow(!closed);
      int n = 0;
      while (n < kBatch && reader_->Next(record)) {
        seen_->Feed(record);
        n++;
      }
      const auto now = Clock::now();
      if (n > 0) quiet_since = now;
      if (n == kBatch && now >= give_up) {
        gave_up_ = true;
        reader_.reset();
        seen_.reset();
        return true;
      }
      if (Stopping()) return false;
      if (n == kBatch) continue;
      if (closed || now - quiet_since >= milliseconds(options_.settle_ms) || now >= give_up)
        return true;
      std::this_thread::sleep_for(kPause);
    }
  }

  const std::string trace_;
  const LogFn log_;
  const VerdictOptions options_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, closed_ = false;
  uint64_t asked_ = 0;

  // Of whoever reads: the thread, and when it is over TraceClosed().
  std::atomic<uint64_t> told_{0};
  bool gave_up_ = false, said_so_ = false;
  uint64_t calls_told_ = 0;
  std::unique_ptr<trace::TraceReader> reader_;
  std::unique_ptr<explain::Observation> seen_;
  std::thread thread_;
};

VerdictTeller::VerdictTeller(std::string trace, LogFn log, VerdictOptions options)
    : impl_(std::make_unique<Impl>(std::move(trace), std::move(log), options)) {}
VerdictTeller::~VerdictTeller() = default;
void VerdictTeller::ClientGone() {
  impl_->ClientGone();
}
void VerdictTeller::TraceClosed() {
  impl_->TraceClosed();
}

}  // namespace tg::proxy
