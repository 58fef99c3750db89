#include "schemas/trace/packet_out.h"

#include <algorithm>

namespace tg::trace {

// In the last kReserve bytes of a segment: only with the next one at hand, so that a recording
// that runs out of disk can still say so and end its file.
bool PacketOut::PlaceNearEnd(size_t total) {
  if (supply_.Poll(patience_) == SegmentSupply::State::kReady) return true;
  return reserve_ == 0 && total <= room();
}

void PacketOut::PublishAcross(const uint8_t* bytes, size_t total) {
  const size_t head = room();
  const Segment before = current_;
  uint8_t* const at = before.bytes.data() + (position_ - before.offset);
  current_ = supply_.Take();
  std::memcpy(current_.bytes.data() + (head == 0), bytes + std::max<size_t>(head, 1),
              total - std::max<size_t>(head, 1));
  if (head > 1) std::memcpy(at + 1, bytes + 1, head - 1);
  StoreTag(head > 0 ? at : current_.bytes.data());
  supply_.Retire(before);
}

}  // namespace tg::trace
