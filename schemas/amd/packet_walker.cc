#include "schemas/amd/packet_walker.h"

#include <algorithm>

#include "schemas/amd/aql_packets.h"

namespace tg::amd {
namespace {

uint64_t Qword(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint64_t>(Dword(bytes.subspan(at), 0)) |
         static_cast<uint64_t>(Dword(bytes.subspan(at), 1)) << 32;
}

bool IsZeroDword(std::span<const uint8_t> bytes, size_t at) {
  return Dword(bytes.subspan(at), 0) == 0;
}

}  // namespace

std::string_view RingFormatName(RingFormat format) {
  switch (format) {
    case RingFormat::kSdma:
      return "SDMA";
    case RingFormat::kPm4:
      return "PM4";
    case RingFormat::kAql:
      return "AQL";
  }
  return "";
}

std::string_view WalkKindText(WalkItem::Kind kind) {
  switch (kind) {
    case WalkItem::Kind::kPacket:
      return "packet";
    case WalkItem::Kind::kPadding:
      return "padding";
    case WalkItem::Kind::kUnwritten:
      return "unwritten";
    case WalkItem::Kind::kAddressTable:
      return "address table, not packets";
    case WalkItem::Kind::kGarbage:
      return "not packets";
    case WalkItem::Kind::kCutOff:
      return "cut off";
  }
  return "";
}

DecodedPacket PacketFormat::Decode(std::span<const uint8_t> bytes) const {
  switch (format) {
    case RingFormat::kSdma:
      return DecodeSdma(bytes, sdma);
    case RingFormat::kPm4:
      return DecodePm4(bytes, pm4);
    case RingFormat::kAql:
      return DecodeAql(bytes);
  }
  return {};
}

uint32_t PacketFormat::pointer_unit() const {
  switch (format) {
    case RingFormat::kSdma:
      return 1;
    case RingFormat::kPm4:
      return 4;
    case RingFormat::kAql:
      return kAqlPacketSize;
  }
  return 1;
}

size_t AddressTableSize(std::span<const uint8_t> bytes) {
  // The helper's driver takes at most 32 ranges, with addresses below 2^40; other servers may not.
  constexpr size_t kMaxPairs = 512;
  constexpr uint64_t kPage = 0x1000, kAddressLimit = 1ull << 48, kLengthLimit = 1ull << 40;
  for (size_t pair = 0; pair <= kMaxPairs; ++pair) {
    const size_t at = pair * 16;
    if (at + 16 > bytes.size()) return 0;
    const uint64_t address = Qword(bytes, at), length = Qword(bytes, at + 8);
    if (length == 0) return pair ? at + 16 : 0;
    if (address == 0 || address % kPage || address >= kAddressLimit || length % kPage ||
        length >= kLengthLimit) {
      return 0;
    }
  }
  return 0;
}

PacketWalker::PacketWalker(std::span<const uint8_t> bytes, const PacketFormat& format)
    : bytes_(bytes), format_(format), tail_zeros_(bytes.size() & ~size_t{3}) {
  while (tail_zeros_ >= 4 && IsZeroDword(bytes_, tail_zeros_ - 4)) tail_zeros_ -= 4;
}

size_t PacketWalker::ZeroRun(size_t at) const {
  size_t end = at;
  while (end + 4 <= bytes_.size() && IsZeroDword(bytes_, end)) end += 4;
  return end - at;
}

bool PacketWalker::Clean(const DecodedPacket& packet) const {
  return packet.problem == PacketProblem::kNone && packet.name != "TYPE0";
}

// Two good packets in a row, the first of them not a NOP; or one that ends where the stretch ends
// or has only padding behind it.
bool PacketWalker::Anchor(size_t at) const {
  const DecodedPacket first = format_.Decode(Rest(at));
  if (!Clean(first) || first.odd_bits || first.role == PacketRole::kNop) return false;
  return FollowedBySense(at, first);
}

bool PacketWalker::FollowedBySense(size_t at, const DecodedPacket& packet) const {
  const size_t next = at + packet.bytes();
  if (packet.dwords == 0 || next > bytes_.size()) return false;
  if (next == bytes_.size()) return true;
  const DecodedPacket second = format_.Decode(Rest(next));
  if (Clean(second) && !second.odd_bits) return true;
  // PM4 zeros behind the last packet: unwritten.
  return second.problem == PacketProblem::kNotAPacket && next >= tail_zeros_;
}

size_t PacketWalker::FindAnchor(size_t from) const {
  for (size_t at = from; at + 4 <= bytes_.size(); at += 4) {
    if (IsZeroDword(bytes_, at)) {
      if (at >= tail_zeros_) return at;
      at += ZeroRun(at) - 4;
    } else if (Anchor(at)) {
      return at;
    }
  }
  return bytes_.size();
}

void PacketWalker::Emit(WalkItem& item, WalkItem::Kind kind, size_t size) {
  item.kind = kind;
  item.offset = at_;
  item.size = size;
  at_ += size;
}

bool PacketWalker::Next(WalkItem& item) {
  using Kind = WalkItem::Kind;
  if (at_ >= bytes_.size()) return false;
  const size_t left = bytes_.size() - at_;
  if (at_ == 0) {
    if (const size_t table = AddressTableSize(bytes_)) {
      item.packet = {};
      Emit(item, Kind::kAddressTable, table);
      return true;
    }
  }
  item.packet = format_.Decode(Rest(at_));
  const DecodedPacket& packet = item.packet;

  if (format_.format == RingFormat::kAql) {
    const bool cut = left < kAqlPacketSize;
    const Kind kind = cut                                            ? Kind::kCutOff
                      : packet.problem == PacketProblem::kNotAPacket ? Kind::kUnwritten
                      : packet.problem == PacketProblem::kUnknownOp  ? Kind::kGarbage
                                                                     : Kind::kPacket;
    Emit(item, kind, std::min<size_t>(left, kAqlPacketSize));
    return true;
  }
  if (left < 4) {
    Emit(item, Kind::kCutOff, left);
    return true;
  }
  if (IsZeroDword(bytes_, at_)) {
    const bool sdma = format_.format == RingFormat::kSdma;
    Emit(item, sdma ? Kind::kPadding : Kind::kUnwritten, ZeroRun(at_));
    return true;
  }
  if (packet.name == "TYPE2") {
    size_t end = at_;
    while (end + 4 <= bytes_.size() && Dword(Rest(end), 0) >> 30 == 2) end += 4;
    Emit(item, Kind::kPadding, end - at_);
    return true;
  }
  if (Clean(packet)) {
    Emit(item, Kind::kPacket, packet.bytes());
    return true;
  }
  if (packet.problem != PacketProblem::kTruncated && FollowedBySense(at_, packet)) {
    Emit(item, Kind::kPacket, packet.bytes());
    return true;
  }
  const size_t anchor = FindAnchor(at_ + 4);
  const bool cut = packet.problem == PacketProblem::kTruncated && anchor == bytes_.size();
  Emit(item, cut ? Kind::kCutOff : Kind::kGarbage, anchor - at_);
  return true;
}

}  // namespace tg::amd
