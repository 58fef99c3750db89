// Goes through a stretch of ring or indirect buffer packet by packet, whatever is in it.
//
// The caller gives linear bytes: a stretch that wraps the ring's end is put together first. Each
// item covers bytes that no other item covers, in order, without gaps.
//
//   kPacket        a packet, perhaps with a problem worth printing
//   kPadding       a run of NOP dwords (SDMA: zero dwords up to the ring's end; PM4: type 2)
//   kUnwritten     PM4 zero dwords, AQL slots of zeros or INVALID
//   kAddressTable  the (DMA address, length) pairs a server leaves at the start of a fresh region
//   kGarbage       bytes that are no packets; after it the walk is in step again
//   kCutOff        the stretch ends inside this packet
//
// Step is lost when a header is unknown, or doubtful (reserved bits, wrong length) with nothing
// sensible behind it. It is found again where two packets without any problem follow each other, or
// one that ends with the stretch. Linear in the number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "schemas/amd/packet.h"
#include "schemas/amd/pm4_packets.h"
#include "schemas/amd/sdma_packets.h"

namespace tg::amd {

enum class RingFormat : uint8_t { kSdma, kPm4, kAql };
std::string_view RingFormatName(RingFormat format);  // "SDMA", "PM4", "AQL"

struct PacketFormat {
  RingFormat format = RingFormat::kSdma;
  SdmaGen sdma = SdmaGen::k6;
  Pm4Gen pm4 = Pm4Gen::kGfx11;

  DecodedPacket Decode(std::span<const uint8_t> bytes) const;
  // Bytes per unit of the queue's pointers: SDMA 1, PM4 4, AQL 64.
  uint32_t pointer_unit() const;
};

struct WalkItem {
  enum class Kind : uint8_t { kPacket, kPadding, kUnwritten, kAddressTable, kGarbage, kCutOff };
  Kind kind = Kind::kPacket;
  size_t offset = 0;     // within the stretch
  size_t size = 0;       // bytes of the stretch it covers
  DecodedPacket packet;  // kPacket, kCutOff; kGarbage: what its first dword looked like
};
std::string_view WalkKindText(WalkItem::Kind kind);

class PacketWalker {
 public:
  PacketWalker(std::span<const uint8_t> bytes, const PacketFormat& format);
  // False at the end of the stretch.
  bool Next(WalkItem& item);
  size_t offset() const { return at_; }

 private:
  std::span<const uint8_t> Rest(size_t at) const { return bytes_.subspan(at); }
  size_t ZeroRun(size_t at) const;
  bool Clean(const DecodedPacket& packet) const;
  bool Anchor(size_t at) const;
  bool FollowedBySense(size_t at, const DecodedPacket& packet) const;
  size_t FindAnchor(size_t from) const;
  void Emit(WalkItem& item, WalkItem::Kind kind, size_t size);

  std::span<const uint8_t> bytes_;
  PacketFormat format_;
  size_t at_ = 0;
  size_t tail_zeros_;  // from here on all dwords are zero
};

// Length in bytes of the server's address table at the start of `bytes`, with its terminator; 0 if
// there is none. u64 pairs (page-aligned DMA address, length in whole pages), ended by length 0.
size_t AddressTableSize(std::span<const uint8_t> bytes);

}  // namespace tg::amd
