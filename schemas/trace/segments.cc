#include "schemas/trace/segments.h"

#include <csignal>
#include <utility>

namespace tg::trace {
namespace {

constexpr std::chrono::seconds kRetry{1};
constexpr size_t kSmallestPage = 4096;
// While a Sync() keeps them from being unmapped, no more than these wait.
constexpr size_t kMostRetired = 4;

// Page faults happen here, on the background thread, and not under the relay's stores.
void Prefault(std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); i += kSmallestPage) {
    volatile uint8_t* page = &bytes[i];
    *page = 0;
  }
}

}  // namespace

SegmentSupply::SegmentSupply(std::unique_ptr<Sink> sink, size_t segment_size)
    : sink_(std::move(sink)), segment_size_(segment_size) {
  retired_.reserve(kMostRetired + 1);
  unmapping_.reserve(kMostRetired + 1);
  // The thread inherits a full signal mask: signals are the program's business, and growing past
  // RLIMIT_FSIZE then fails with EFBIG instead of killing the process with SIGXFSZ.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Making the next segment comes before all else: somebody may be waiting for it.
void SegmentSupply::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool crowded = retired_.size() >= kMostRetired;
    if (!have_next_ && !crowded && std::chrono::steady_clock::now() >= retry_at_) {
      MapNext(lock);
    } else if (!retired_.empty() && !busy_) {
      busy_ = true;
      lock.unlock();
      UnmapRetired();
      lock.lock();
      busy_ = false;
      idle_.notify_all();
    } else if (have_next_ || crowded) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, retry_at_);
    }
  }
}

void SegmentSupply::MapNext(std::unique_lock<std::mutex>& lock) {
  const uint64_t offset = next_offset_;
  lock.unlock();
  Result<std::span<uint8_t>> mapped = sink_->Map(offset, segment_size_);
  if (mapped) Prefault(*mapped);
  lock.lock();
  failed_ = !mapped;
  if (mapped) {
    have_next_ = true;
    next_ = {*mapped, offset};
    next_offset_ = offset + mapped->size();
  } else {
    error_ = mapped.error();
    retry_at_ = std::chrono::steady_clock::now() + kRetry;
  }
  ready_.notify_all();
}

void SegmentSupply::UnmapRetired() {
  {
    const std::lock_guard lock(mutex_);
    unmapping_.swap(retired_);
  }
  for (const Segment& segment : unmapping_) sink_->Unmap(segment.bytes);
  unmapping_.clear();
}

void SegmentSupply::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !busy_; });
}

bool SegmentSupply::TryBeginSync() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(busy_, true);
}

void SegmentSupply::EndSync() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  idle_.notify_all();
  wake_.notify_one();
}

Result<Segment> SegmentSupply::First() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] { return have_next_ || failed_; });
  if (!have_next_) return tl::unexpected(error_);
  have_next_ = false;
  wake_.notify_one();
  return next_;
}

SegmentSupply::State SegmentSupply::Poll(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (patience.count() > 0 && !have_next_ && !failed_)
    ready_.wait_for(lock, patience, [this] { return have_next_ || failed_; });
  return have_next_ ? State::kReady : failed_ ? State::kFailed : State::kLate;
}

Error SegmentSupply::LastError() {
  const std::lock_guard lock(mutex_);
  return error_;
}

Segment SegmentSupply::Take() {
  const std::lock_guard lock(mutex_);
  have_next_ = false;
  return next_;
}

void SegmentSupply::Retire(const Segment& old) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(old);
  wake_.notify_one();
}

void SegmentSupply::Stop(const Segment& current) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  WaitIdle();
  UnmapRetired();
  if (!current.bytes.empty()) sink_->Unmap(current.bytes);
  if (have_next_) sink_->Unmap(next_.bytes);
  have_next_ = false;
}

}  // namespace tg::trace
