// One connection as the capture thread follows it: the device model, the queues in it, what is
// copied from shared memory, and the stall watch. No thread and no clock of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "proxy/capture/collector.h"
#include "proxy/capture/handover.h"
#include "proxy/capture/stall_watch.h"
#include "proxy/capture/store.h"

namespace tinygpu::trace {
class Packet;
}

namespace tg::proxy {

struct FollowerHooks {
  // Reads live memory; empty on TCP, where memory crosses the wire anyway.
  CopyFn copy;
  // Appends to the trace.
  std::function<void(tinygpu::trace::Packet&)> append;
  std::function<void(bool warning, const std::string& text)> say;
};

class Follower : public model::Observer {
 public:
  Follower(FollowerHooks hooks, uint32_t connection, bool full, StallTimes times = {});
  ~Follower() override;

  void Handle(const Handed& record);
  // To be called often: live warnings and the snapshots that belong to them.
  void Tick(uint64_t now);
  void Snapshot(StoreWhy why);
  // The client is gone.
  void End(uint64_t now);

  const model::Device& device() const { return device_; }
  const model::Queues& queues() const { return queues_.queues(); }
  uint64_t doorbells() const { return doorbells_; }
  uint64_t bytes_stored() const { return bytes_stored_; }
  uint64_t torn() const { return collector_.torn(); }
  uint64_t stalls() const { return stalls_; }
  uint64_t stalled_since() const { return watch_.stalled_since(); }  // 0: no stall now
  // Every queue that has work outstanding, in one line; all queues when none has.
  std::string StateLine() const;

  void OnDoorbell(const model::DoorbellWrite& doorbell) override;

 private:
  void FeedRequest(const Handed& record);
  void FeedReply(const Handed& record);
  void FeedRegion(const Handed& record);
  void FeedPacket(const tinygpu::trace::Packet& packet, uint64_t now);
  void Emit(const StoredRun& run);
  void Watch(const Handed& record);
  void Act(const StallWatch::Action& action, uint64_t now);
  bool Outstanding() const;
  void Event(int kind, const std::string& text);
  std::string LastDoorbell(uint64_t now) const;

  FollowerHooks hooks_;
  model::Device device_;
  model::DeviceQueues queues_;
  ChangeStore store_;
  Collector collector_;
  StallWatch watch_;
  uint64_t now_ = 0;
  uint64_t last_call_ = 0;
  std::vector<uint64_t> rung_;  // doorbell offsets of the message being handled
  // A reply whose body comes in pieces.
  std::vector<uint8_t> body_;
  uint64_t body_call_ = 0, body_size_ = 0, body_now_ = 0;
  wire::ReplyHeader body_reply_;
  uint64_t request_ns_ = 0;  // of the newest call that waits for an answer
  uint64_t rounds_seen_ = 0, drains_seen_ = 0;
  uint64_t doorbells_ = 0, bytes_stored_ = 0, stalls_ = 0;
};

}  // namespace tg::proxy
