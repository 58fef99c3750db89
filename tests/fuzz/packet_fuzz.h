// What the three packet decoders' fuzz targets check: any bytes, walked without a gap, without an
// overlap, without reading outside.
#pragma once

#include "schemas/amd/packet_walker.h"
#include "tests/fuzz/fuzz.h"

namespace tg::fuzz {

inline void WalkAnything(std::span<const uint8_t> bytes, const amd::PacketFormat& format) {
  amd::PacketWalker walker(bytes, format);
  amd::WalkItem item;
  size_t at = 0;
  while (walker.Next(item)) {
    FUZZ_CHECK(item.offset == at);
    FUZZ_CHECK(item.size > 0 && item.size <= bytes.size() - at);
    at += item.size;
    const amd::DecodedPacket& packet = item.packet;
    FUZZ_CHECK(packet.raw.empty() ||
               (packet.raw.data() >= bytes.data() &&
                packet.raw.data() + packet.raw.size() <= bytes.data() + bytes.size()));
    if (item.kind == amd::WalkItem::Kind::kPacket) FUZZ_CHECK(packet.bytes() == item.size);
    if (packet.problem == amd::PacketProblem::kNone && packet.dwords != 0 &&
        item.kind == amd::WalkItem::Kind::kPacket) {
      FUZZ_CHECK(packet.raw.size() == packet.bytes());
    }
    (void)WaitOf(packet);
    (void)FenceOf(packet);
    (void)CopyOf(packet);
    (void)IndirectOf(packet);
  }
  FUZZ_CHECK(at == bytes.size());
}

}  // namespace tg::fuzz
