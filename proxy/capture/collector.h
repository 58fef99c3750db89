// Decides what of the shared memory is copied when, for one connection.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "decoder/model/queues.h"
#include "proxy/capture/page_scan.h"
#include "proxy/capture/store.h"

namespace tg::proxy {

// Reads the live memory while it is being written by the client and the GPU. Fills `to` from its
// front; the number of bytes that could be had.
using CopyFn = std::function<size_t(uint32_t region, uint64_t offset, std::span<uint8_t> to)>;

// The memory of the queues as it is now: whatever is read through it is in the trace afterwards.
class CapturingMemory : public model::QueueMemory {
 public:
  CapturingMemory(const model::QueueMemory& modelled, CopyFn copy, ChangeStore& store)
      : modelled_(modelled), copy_(std::move(copy)), store_(store) {}

  model::Place Locate(uint64_t va) const override { return modelled_.Locate(va); }
  bool ReadPlace(const model::Place& place, std::span<uint8_t> out) const override;

  // Reads without storing; nothing if it cannot be had. Words of up to 8 bytes are taken as they
  // are, larger pieces twice: `torn` if they kept changing.
  bool Peek(const model::Place& place, std::span<uint8_t> out, bool& torn) const;
  std::optional<uint64_t> Peek64(uint64_t va) const;
  void StoreBytes(const model::Place& place, std::span<const uint8_t> bytes, bool torn) const;

  void set_why(StoreWhy why) { why_ = why; }
  uint64_t torn() const { return torn_; }

 private:
  const model::QueueMemory& modelled_;
  CopyFn copy_;
  ChangeStore& store_;
  StoreWhy why_ = StoreWhy::kDoorbell;
  mutable std::vector<uint8_t> again_;
  mutable uint64_t torn_ = 0;
};

class Collector {
 public:
  // `store` has to end in the model that `queues` follows: what is stored is known at once.
  Collector(const model::Queues& queues, CopyFn copy, ChangeStore& store, bool full);

  void AddRegion(uint32_t region, uint64_t bytes);
  // The queue's doorbell was just rung (and the model told).
  void OnDoorbell(size_t queue);
  // Everything the queues need now, small regions whole; with `full`, every changed page.
  void Snapshot(StoreWhy why);

  uint64_t torn() const { return memory_.torn(); }

 private:
  struct Progress {
    uint32_t epoch = 0;
    uint64_t captured = 0;  // ring bytes up to here are in the trace
    bool known = false;
  };
  bool CaptureRing(const model::Queue& queue);
  // Where the capture of a queue begins that was not looked at yet.
  uint64_t FirstPosition(const model::Queue& queue, uint64_t to) const;
  // What a copy packet reads from shared memory, for `full`.
  void CaptureSource(const amd::DecodedPacket& packet);
  bool CopyRing(const model::Queue& queue, uint64_t from, std::vector<uint8_t>& bytes);
  void MaskPointers(uint32_t region, uint64_t offset, std::span<uint8_t> page) const;
  void CapturePointers(const model::Queue& queue, std::optional<uint64_t> wptr_word);
  void CaptureWords(std::span<const uint64_t> addresses);
  void Remember(uint64_t va);

  const model::Queues& queues_;
  CapturingMemory memory_;
  PageScan pages_;
  const bool full_;
  std::map<size_t, Progress> progress_;
  // Write pointer words as they were stored last. A page that holds one is stored with this value:
  // a newer one would promise ring bytes that are not in the trace yet.
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> pointers_;
  std::deque<uint64_t> words_;  // addresses that packets named lately, newest last
};

}  // namespace tg::proxy
