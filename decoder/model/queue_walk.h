// Visits the packets of a stretch of memory, and those of the indirect buffers they reach.
//
// Bounded whatever the memory holds: buffers nest at most kMaxDepth deep, one that is reached again
// is not visited twice, and the dwords visited in all are limited.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>

#include "decoder/model/queue_memory.h"
#include "schemas/amd/packet_walker.h"

namespace tg::model {

struct WalkLimits {
  uint32_t max_depth = 4;
  uint64_t max_dwords = 4u << 20;  // in all
  uint32_t max_buffers = 4096;
  uint32_t max_buffer_dwords = 1u << 20;  // of one; the size field has 20 bits
};

// One item of a walk.
struct VisitedItem {
  const amd::WalkItem* item = nullptr;  // packet.raw is valid during the visit only
  uint64_t va = 0;                      // of the item's first byte
  uint64_t offset = 0;                  // within the stretch, or within its indirect buffer
  uint32_t depth = 0;                   // 0: the stretch itself
};

// An indirect buffer that a packet names.
struct ReachedBuffer {
  uint64_t va = 0;
  uint32_t dwords = 0;
  uint32_t depth = 1;
  enum class State : uint8_t { kRead, kNotObserved, kAgain, kTooDeep, kTooMuch } state{};
};

class RingWalk {
 public:
  using ItemFn = std::function<void(const VisitedItem&)>;
  using BufferFn = std::function<void(const ReachedBuffer&)>;

  RingWalk(const QueueMemory& memory, const amd::PacketFormat& format, WalkLimits limits = {})
      : memory_(memory), format_(format), limits_(limits) {}

  // `bytes` were read from `va` on (va is only used to name addresses). The buffer function is
  // called when a buffer is met, before its packets.
  void Visit(std::span<const uint8_t> bytes, uint64_t va, const ItemFn& on_item,
             const BufferFn& on_buffer = nullptr);

 private:
  void Walk(std::span<const uint8_t> bytes, uint64_t va, uint32_t depth,
            const amd::PacketFormat& format);
  void Enter(const amd::IndirectSpec& spec, uint32_t depth, const amd::PacketFormat& outer);

  const QueueMemory& memory_;
  amd::PacketFormat format_;
  WalkLimits limits_;
  const ItemFn* on_item_ = nullptr;
  const BufferFn* on_buffer_ = nullptr;
  std::unordered_set<uint64_t> seen_;  // addresses of buffers tried
  uint64_t dwords_ = 0;
};

}  // namespace tg::model
