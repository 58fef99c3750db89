#include "decoder/model/queue_walk.h"

#include <algorithm>

namespace tg::model {

void RingWalk::Visit(std::span<const uint8_t> bytes, uint64_t va, const ItemFn& on_item,
                     const BufferFn& on_buffer) {
  on_item_ = &on_item;
  on_buffer_ = &on_buffer;
  Walk(bytes, va, 0, format_);
}

void RingWalk::Walk(std::span<const uint8_t> bytes, uint64_t va, uint32_t depth,
                    const amd::PacketFormat& format) {
  amd::PacketWalker walker(bytes, format);
  amd::WalkItem item;
  while (walker.Next(item)) {
    if (depth == 0) dwords_ += item.size / 4;
    if (*on_item_) {
      (*on_item_)({.item = &item, .va = va + item.offset, .offset = item.offset, .depth = depth});
    }
    if (item.kind != amd::WalkItem::Kind::kPacket) continue;
    if (const auto spec = IndirectOf(item.packet)) {
      // A buffer that lies in the very stretch being walked (the wrapper tinygrad uses for several
      // XCCs: its packets are the body of the NOP that follows) is walked like any other.
      Enter(*spec, depth + 1, format);
    }
  }
}

void RingWalk::Enter(const amd::IndirectSpec& spec, uint32_t depth,
                     const amd::PacketFormat& outer) {
  ReachedBuffer reached{.va = spec.address, .dwords = spec.dwords, .depth = depth};
  using State = ReachedBuffer::State;
  std::vector<uint8_t> bytes;
  if (depth > limits_.max_depth) {
    reached.state = State::kTooDeep;
  } else if (seen_.contains(spec.address)) {
    reached.state = State::kAgain;
  } else if (spec.dwords > limits_.max_buffer_dwords ||
             dwords_ + spec.dwords > limits_.max_dwords || seen_.size() >= limits_.max_buffers) {
    reached.state = State::kTooMuch;
  } else {
    // Attempts count, too: a ring may name a million buffers that were never seen.
    seen_.insert(spec.address);
    dwords_ += spec.dwords;
    bytes.resize(size_t{spec.dwords} * 4);
    reached.state = memory_.Read(spec.address, bytes) ? State::kRead : State::kNotObserved;
  }
  if (*on_buffer_) (*on_buffer_)(reached);
  if (reached.state != State::kRead) return;
  // The body of an AQL vendor packet is PM4.
  amd::PacketFormat inner = outer;
  if (inner.format == amd::RingFormat::kAql) inner.format = amd::RingFormat::kPm4;
  Walk(bytes, spec.address, depth, inner);
}

}  // namespace tg::model
