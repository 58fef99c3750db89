// What a client asks of a card, whoever carries it out: the RPCs over a socket, or, in tests, the
// simulated card itself.
//
// Inside this component errors are thrown as Trouble; Session (session.h) turns them into results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schemas/result.h"

namespace tg::client {

struct Trouble {
  Error error;
};
[[noreturn]] inline void Throw(Error::Code code, std::string message) {
  throw Trouble{Error{code, std::move(message)}};
}

// Host memory that the card can reach.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  uint64_t size() const { return size_; }
  // DMA address of each 4 KiB page.
  const std::vector<uint64_t>& pages() const { return pages_; }
  virtual void Read(uint64_t offset, std::span<uint8_t> out) = 0;
  virtual void Write(uint64_t offset, std::span<const uint8_t> in) = 0;
  // One access, ordered: what the card wrote before it wrote this value can be read after it.
  virtual uint64_t Load64(uint64_t offset) = 0;
  virtual void Store64(uint64_t offset, uint64_t value) = 0;

 protected:
  HostMemory(uint64_t size, std::vector<uint64_t> pages) : size_(size), pages_(std::move(pages)) {}
  uint64_t size_;
  std::vector<uint64_t> pages_;
};

class Port {
 public:
  virtual ~Port() = default;
  virtual void ResizeBar(uint32_t bar) = 0;
  virtual uint64_t MapBar(uint32_t bar) = 0;  // its size
  virtual uint32_t CfgRead(uint64_t offset, uint32_t size) = 0;
  virtual void CfgWrite(uint64_t offset, uint32_t size, uint32_t value) = 0;
  virtual void Read(uint32_t bar, uint64_t offset, std::span<uint8_t> out) = 0;
  virtual void Write(uint32_t bar, uint64_t offset, std::span<const uint8_t> in) = 0;
  virtual std::unique_ptr<HostMemory> MapHost(uint64_t size) = 0;
};

}  // namespace tg::client
