// Queues fed by the device model: the piece between Device's observers and Queues.
//
//   Device device;
//   DeviceQueues queues(device);   // before the first record is fed
//   ... device.Feed(record) ...
//   StateOf(queues.queues(), i);
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "decoder/model/access.h"
#include "decoder/model/copies.h"
#include "decoder/model/device.h"
#include "decoder/model/queue_memory.h"
#include "decoder/model/queue_state.h"
#include "decoder/model/queues.h"

namespace tg::model {

// Memory as the trace shows it. An address that no page table was seen for is taken for a DMA
// address if a region has that one (`assumed`): constructed or partial traces.
class DeviceMemory : public QueueMemory {
 public:
  explicit DeviceMemory(const Device& device) : device_(device) {}
  Place Locate(uint64_t va) const override;
  bool ReadPlace(const Place& place, std::span<uint8_t> out) const override;

 private:
  const Device& device_;
};

class DeviceQueues : public Observer {
 public:
  explicit DeviceQueues(Device& device);

  Queues& queues() { return queues_; }
  const Queues& queues() const { return queues_; }
  const DeviceMemory& memory() const { return memory_; }
  const Copies& copies() const { return copies_; }
  // How a queue stood when it was set up again with work left in it: what recovery from a hang
  // wipes out. By queue, the latest; nothing where that did not happen.
  struct Abandoned {
    uint64_t call = 0;  // of the write that enabled it again
    QueueState state;
  };
  const std::map<size_t, Abandoned>& abandoned() const { return abandoned_; }

  void OnRegister(const RegisterAccess& access) override;
  void OnAutopsy(const RegisterAccess& access) override { OnRegister(access); }
  void OnMemory(const MemoryAccess& access) override;
  void OnDoorbell(const DoorbellWrite& doorbell) override;
  void OnConnect(Stamp at) override;
  // No more records will come.
  void Finish();

 private:
  void FollowVersions();
  void OnPacket(const QueuePacketEvent& event);
  void NoteAbandoned(std::string_view name, uint32_t instance, uint32_t value, uint64_t call);

  const Device& device_;
  DeviceMemory memory_;
  Queues queues_;
  Copies copies_;
  size_t regions_seen_ = 0;
  std::map<size_t, Abandoned> abandoned_;
  uint64_t map_generation_ = ~0ull;
};

}  // namespace tg::model
