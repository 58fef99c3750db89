// Does the visible part of the device's work while a trace is served: when the client rings, the
// packets in *its* ring are gone through, and what they store in shared memory is stored.
//
//   carried out   fences, timestamps, copies, small writes, read pointers
//   waited for    POLL_REGMEM and WAIT_REG_MEM on memory, in each queue's order
//   not done      kernels: what they computed comes from the trace, where it shows it
//
// Why not only what the proxy copied: it copies a fence at the next doorbell, not when the client
// sees it; and data that the device copies out is never in the trace by default. Queues, page
// tables and versions are the recording's (the model follows it call by call); memory is the
// client's own.
//
// A submission that hung in the recording (Bell::stuck) is not begun, nor what its queue holds
// behind it until the queue is set up anew: the client hangs as it did then. One that took long
// (Bell::slow_until) is done at the call by which it was done then.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "decoder/model/access.h"
#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "replay/script/device_words.h"
#include "replay/script/ranges.h"
#include "replay/script/shared.h"
#include "replay/script/sparse.h"
#include "schemas/trace/reader.h"

namespace tg::replay {

class Engine : public model::Observer, public model::QueueMemory {
 public:
  // `reader`: the same trace from its start, for the engine alone. `words` must outlive it.
  Engine(std::unique_ptr<trace::TraceReader> reader, const DeviceWords& words);
  ~Engine() override;

  // The client has a new region; nullptr forgets it.
  void SetRegion(uint32_t index, SharedMemory* memory);
  // Everything recorded up to call `number` has happened.
  void Follow(uint64_t number);
  // Goes on with all queues as far as their waits allow. Returns words and ranges stored.
  size_t Run();

  // Does the engine know better than the proxy's copy what [offset, offset + size) of the region
  // holds? So it is where it stored, and for fences and read pointers of queues it understands.
  bool Keeps(uint32_t region, uint64_t offset, uint64_t size) const;
  uint64_t packets() const { return packets_; }
  uint64_t unknown_bytes() const { return unknown_bytes_; }  // of copies whose source nobody knows
  uint64_t stuck_call() const { return stuck_call_; }  // doorbell whose work is not done; 0: none

  // model::QueueMemory, over the client's memory and the VRAM as far as it is known.
  model::Place Locate(uint64_t va) const override;
  bool ReadPlace(const model::Place& place, std::span<uint8_t> out) const override;

  // model::Observer
  void OnMemory(const model::MemoryAccess& access) override;
  void OnDoorbell(const model::DoorbellWrite& doorbell) override;
  void OnConnect(model::Stamp at) override;

 private:
  struct Op {
    enum class Kind : uint8_t { kHold, kWait, kFence, kCopy, kTimestamp, kStore, kPointer } kind{};
    amd::WaitSpec wait;
    amd::FenceSpec fence;
    amd::CopySpec copy;
    uint64_t address = 0;        // kTimestamp, kStore
    std::vector<uint8_t> bytes;  // kStore
    uint64_t value = 0;          // kPointer; kHold: until this call
  };
  struct Work {
    uint32_t epoch = 0;  // set-up of the queue that the operations belong to
    bool stuck = false;
    std::deque<Op> ops;
  };
  void Load(const model::Queue& queue, const model::Submission& submission);
  bool LoadOps(const model::Queue& queue, const model::Submission& submission, std::deque<Op>& ops);
  bool MayGo(const Op& op) const;
  std::optional<Op> Translate(const amd::DecodedPacket& packet) const;
  bool Holds(const amd::WaitSpec& wait) const;
  void Do(const Op& op);
  void Store(uint64_t va, std::span<const uint8_t> bytes);
  void StorePlace(const model::Place& place, std::span<const uint8_t> bytes);
  void Copy(const amd::CopySpec& copy);

  std::unique_ptr<trace::TraceReader> reader_;
  trace::Record record_;
  bool have_record_ = false;
  const DeviceWords& words_;
  model::Device device_;
  model::DeviceQueues queues_;
  std::map<uint32_t, SharedMemory*> regions_;
  std::map<uint32_t, RangeSet> wrote_;
  SparseMemory vram_;
  std::map<size_t, Work> work_;  // by queue
  uint32_t session_ = 0;
  bool connected_ = false;
  bool blind_ = false;  // some doorbell's packets could not be read
  uint64_t followed_ = 0;
  size_t stored_ = 0;
  uint64_t packets_ = 0, unknown_bytes_ = 0, stuck_call_ = 0;
};

}  // namespace tg::replay
