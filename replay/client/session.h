// One client session on a card: boot, queues, copies, fences, end. What tinygrad does for a copy
// program, without Python: for demonstrations, and as the load of tests.
//
// Waiting is tinygrad's: the timeline signal is looked at in memory, after 200 ms the interrupt
// ring is read in every round, and after `wait_timeout` without progress the compute engine is
// recovered and the device counts as hung.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "replay/client/port.h"
#include "schemas/result.h"

namespace tg::client {

struct SessionOptions {
  bool force_full_boot = false;
  std::chrono::milliseconds wait_timeout{30'000};
};

// Memory on the card, by its GPU address.
struct Buffer {
  uint64_t va = 0;
  uint64_t size = 0;
};

class Session {
 public:
  // Boots the card and sets up everything tinygrad does before it hands out a device: compute
  // queue, SDMA queue, 32 staging buffers, signals, kernel arguments.
  static Result<std::unique_ptr<Session>> Open(Port& port, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool partial_boot() const;
  std::string arch() const;  // "gfx1100"

  Result<Buffer> Allocate(uint64_t size);
  Result<void> CopyIn(const Buffer& to, std::span<const uint8_t> data);
  Result<void> CopyOut(const Buffer& from, std::span<uint8_t> data);
  // On the compute queue: caches, then the timeline signal.
  Result<void> Barrier();
  Result<void> Synchronize();
  // Takes the queues down and leaves the note for the next session. Once; nothing works after it.
  Result<void> Close();

  // For tests of the engines: raw packets (dwords) with nothing around them, host memory with its
  // GPU address, and the registers.
  struct Shared {
    uint64_t va = 0;
    HostMemory* memory = nullptr;  // owned by the session
  };
  Result<void> SubmitSdma(std::span<const uint32_t> packets);
  Result<void> SubmitCompute(std::span<const uint32_t> packets);
  Result<Shared> MapHost(uint64_t size);
  Result<void> Unmap(const Buffer& buffer);
  Result<uint32_t> ReadRegister(std::string_view name);
  Result<void> WriteRegister(std::string_view name, uint32_t value);
  // As the engine reports it in memory: bytes (SDMA), dwords (compute).
  uint64_t sdma_rptr() const;
  uint64_t compute_rptr() const;
  uint64_t timeline() const;  // the signal's value in memory

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::client
