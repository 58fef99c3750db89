// Shared memory behind MAP_SYSMEM_FD while a trace is played: made by us (serve) or received from
// the server (drive), and beside it what the recording held there.
//
// What the proxy copied at a doorbell shows the work of both sides: ring words and write pointers
// that the client stored, fences and read pointers that the device stored. Whose a word is follows
// from comparing three things:
//
//   before = what the trace held there last      now = what the trace holds
//   here   = what our memory holds
//
//   here == now               nothing to do
//   before == now             nobody changed it in the recording: ours to leave alone
//   before == here            changed in the recording, not here: the other side's work
//   all three differ          both: see Merge
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "replay/net/socket.h"
#include "replay/script/call.h"
#include "replay/script/sparse.h"
#include "schemas/result.h"

namespace tg::replay {

// Which words may be stored at all.
using WordFilter = std::function<bool(uint64_t offset, uint64_t size)>;

enum class Merge : uint8_t {
  kOther,     // store the other side's work; leave a word that all three give differently
  kChanged,   // store every word that changed in the recording
  kAll,       // store every word
  kRemember,  // store nothing
};

class SharedMemory {
 public:
  // A fresh object with no name left behind: one ftruncate, as macOS allows no second.
  static Result<SharedMemory> Create(uint64_t size);
  // Maps `size` bytes of a received descriptor.
  static Result<SharedMemory> Map(UniqueFd fd, uint64_t size);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  std::span<uint8_t> bytes() const { return {data_, size_}; }

  // Brings `memory` in by words of 4 bytes and remembers it as the recording's. Returns the number
  // of words stored. What lies past the end is left out.
  size_t Apply(const Memory& memory, Merge merge, const WordFilter& may_store = nullptr);
  // How many words Apply would store; remembers nothing.
  size_t Count(const Memory& memory, Merge merge, const WordFilter& may_store = nullptr) const;
  // The (address, length) pairs at the start of a fresh region, ended by a pair of zeros.
  void StoreTable(const std::vector<DmaRange>& ranges);
  std::vector<DmaRange> LoadTable() const;
  const SparseMemory& recorded() const { return recorded_; }

 private:
  SharedMemory() = default;
  template <typename OnWord>
  void Walk(const Memory& memory, Merge merge, const WordFilter& may_store, OnWord on_word) const;

  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  SparseMemory recorded_;
};

}  // namespace tg::replay
