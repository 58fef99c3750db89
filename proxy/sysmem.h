// The shared memory behind MAP_SYSMEM_FD: rings, pointers, fences and staging bytes that never
// cross the socket. Each region is mapped read-only beside the client and copied from when asked.
//
//   The server answers MAP_SYSMEM_FD with one descriptor. Until the client overwrites it, the
//   region begins with its address table: u64 pairs (DMA address, length), ended by a pair of
//   length 0.
//
// Invariants: nothing is ever written to the memory. The descriptor is not kept (a connection may
// have 128 regions, macOS' default limit is 256 descriptors). A peer may truncate the object at any
// time, which would end a plain reader by SIGBUS: all copies go through the kernel, which answers
// with EFAULT instead.
//
// Thread-safe: regions are added by the relay's thread and copied by others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proxy/socket.h"

namespace tg::proxy {

// Regions up to this size are copied whole in a snapshot.
inline constexpr uint64_t kSmallRegion = 64 * 1024;
// More regions than this of one connection are not mapped; TinyGPU.app has 128.
inline constexpr size_t kMaxRegions = 1024;
// server.c copies at most 8192 bytes of table.
inline constexpr size_t kMaxTableBytes = 8192;

// Copies memory that may vanish under the reader: through a pipe, since write(2) reports a bad page
// as EFAULT. One thread at a time.
class SafeCopier {
 public:
  SafeCopier();
  bool ok() const { return read_.valid(); }
  // Bytes copied: less than asked when the memory ends before.
  size_t Copy(const uint8_t* from, std::span<uint8_t> to);

 private:
  UniqueFd read_, write_;
};

struct SysmemRegion {
  uint32_t index = 0;
  uint64_t asked = 0;    // bytes
  uint64_t granted = 0;  // as the server said
  uint64_t mapped = 0;   // bytes mapped here, 0 when it was not possible
  std::vector<std::pair<uint64_t, uint64_t>> table;  // (DMA address, length)
  std::string problem;                               // why not mapped, or what is odd
};

// Bytes of a region that were not stored before.
struct SysmemBytes {
  uint32_t index = 0;
  uint64_t offset = 0;
  std::vector<uint8_t> data;  // empty: `zeros` zero bytes
  uint64_t zeros = 0;
};

class SysmemTable {
 public:
  SysmemTable();
  ~SysmemTable();

  // Maps what `fd` is and reads its address table; to be called before the reply goes on. The
  // descriptor stays the caller's.
  SysmemRegion Add(int fd, uint32_t index, uint64_t asked, uint64_t granted);

  // Copies from a region; the number of bytes that could be had. 0 for an unknown index.
  size_t Copy(uint32_t index, uint64_t offset, std::span<uint8_t> to);

  // What changed in the small regions since it was last stored, page by page.
  void SnapshotSmall(const std::function<void(const SysmemBytes&)>& emit);

  size_t size() const;
  uint64_t granted_total() const;
  std::vector<SysmemRegion> regions() const;

 private:
  struct Mapping;
  mutable std::mutex mutex_;  // the lists
  std::mutex copy_mutex_;     // the copier and the pages' fingerprints
  std::vector<std::shared_ptr<Mapping>> mappings_;
  SafeCopier copier_;
};

}  // namespace tg::proxy
