// A client that takes each answer for that of its next request. It happens when Ctrl-C (or a stray
// answer) comes between a request and its answer: the driver's finish then goes on with the stream
// off by one. Every answer on the wire is right; what betrays the client is what it does with them:
// it reads interrupts although the ring's pointers, as it was told, say that there are none.
#pragma once

#include <cstdint>

#include "decoder/model/access.h"
#include "decoder/model/device.h"

namespace tg::explain {

class ShiftWatch : public model::Observer {
 public:
  explicit ShiftWatch(const model::Device& device) : device_(device) {}
  void OnMemory(const model::MemoryAccess& access) override;
  void OnConnect(model::Stamp) override { reads_ = 0; }

  // Dwords of the interrupt ring that were read without an entry being there.
  uint64_t reads() const { return reads_; }
  model::Stamp first() const { return first_; }
  model::Stamp last() const { return last_; }

 private:
  const model::Device& device_;
  uint64_t reads_ = 0;
  model::Stamp first_, last_;
};

}  // namespace tg::explain
