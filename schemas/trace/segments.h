// Hands the writer one mapped segment of the file after the other, each made ready by a background
// thread while the one before is being filled: allocating, mapping and touching pages takes
// milliseconds, and the relay has microseconds.
//
//            Take()                      Retire()
//   [ next ] ------> current (writer's) ---------> [ retired ] -> unmapped
//
// When the next segment cannot be had (disk full), the thread tries again about every second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "schemas/result.h"
#include "schemas/trace/writer.h"

namespace tg::trace {

struct Segment {
  std::span<uint8_t> bytes;
  uint64_t offset = 0;  // of bytes.front() in the file
  uint64_t end() const { return offset + bytes.size(); }
};

class SegmentSupply {
 public:
  SegmentSupply(std::unique_ptr<Sink> sink, size_t segment_size);
  ~SegmentSupply() { Stop(); }
  SegmentSupply(const SegmentSupply&) = delete;
  SegmentSupply& operator=(const SegmentSupply&) = delete;

  // The first segment; waits for it. To be called once, before anything else.
  Result<Segment> First();

  enum class State : uint8_t { kReady, kLate, kFailed };
  // Is the next segment there? Waits up to `patience` while the thread still works on it.
  State Poll(std::chrono::milliseconds patience);
  // After kFailed: why.
  Error LastError();

  // The next segment; only after Poll() said kReady.
  Segment Take();
  // The thread unmaps it, and makes the one after the next.
  void Retire(const Segment& old);

  // Forces everything to the disk that stands in retired segments and in the span that `locate`
  // gives, called with the writer's lock `owner` held. That lock is free while the disk works, and
  // the next segment can still be made; only unmapping waits.
  template <typename F>
  Result<void> Sync(std::mutex& owner, const F& locate) {
    std::span<uint8_t> dirty;
    for (bool begun = false; !begun;) {
      WaitIdle();
      // Never wait for the owner's lock once unmapping is held up: the owner may be waiting for it.
      const std::lock_guard hold(owner);
      begun = TryBeginSync();
      if (begun) dirty = locate();
    }
    UnmapRetired();
    Result<void> done = sink_->Sync(dirty);
    EndSync();
    return done;
  }

  // Ends the thread and unmaps everything, `current` too.
  void Stop(const Segment& current = {});
  // After Stop().
  Result<void> Truncate(uint64_t size) { return sink_->Truncate(size); }

 private:
  void Run();
  void MapNext(std::unique_lock<std::mutex>& lock);
  void UnmapRetired();  // with busy_ set by the caller
  void WaitIdle();
  bool TryBeginSync();
  void EndSync();

  std::unique_ptr<Sink> sink_;
  const size_t segment_size_;

  std::mutex mutex_;
  std::condition_variable wake_;   // for the thread
  std::condition_variable ready_;  // for who waits in Poll()
  std::condition_variable idle_;   // for who waits in WaitIdle()
  bool stop_ = false;
  bool have_next_ = false;
  bool failed_ = false;
  std::chrono::steady_clock::time_point retry_at_;
  Error error_;
  Segment next_;
  uint64_t next_offset_ = 0;
  std::vector<Segment> retired_;
  std::vector<Segment> unmapping_;
  bool busy_ = false;  // Sync() or an unmapping is under way: never both
  std::thread thread_;
};

}  // namespace tg::trace
