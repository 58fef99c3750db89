#include "schemas/amd/aql_packets.h"

#include <algorithm>

#include "schemas/amd/packet_table.h"

namespace tg::amd {
namespace {

using K = FieldKind;
using R = PacketRole;

#define TG_AQL_HEADER \
  Quiet("barrier", 0, 8, 8), Quiet("acquire", 0, 10, 9), Quiet("release", 0, 12, 11)

constexpr FieldSpec kDispatch[] = {TG_AQL_HEADER,
                                   Bits("dimensions", K::kCount, 0, 31, 16),
                                   Bits("group_x", K::kCount, 1, 15, 0),
                                   Bits("group_y", K::kCount, 1, 31, 16),
                                   Bits("group_z", K::kCount, 2, 15, 0),
                                   Word("grid_x", K::kCount, 3),
                                   Word("grid_y", K::kCount, 4),
                                   Word("grid_z", K::kCount, 5),
                                   Word("private_bytes", K::kBytes, 6),
                                   Word("lds_bytes", K::kBytes, 7),
                                   Address("kernel_object", 8),
                                   Address("kernarg", 10),
                                   Address("completion_signal", 14)};
constexpr FieldSpec kBarrier[] = {TG_AQL_HEADER,
                                  Address("signal0", 2),
                                  Address("signal1", 4),
                                  Address("signal2", 6),
                                  Address("signal3", 8),
                                  Address("signal4", 10),
                                  Address("completion_signal", 14)};
constexpr FieldSpec kAgent[] = {TG_AQL_HEADER, Bits("type", K::kValue, 0, 31, 16),
                                Address("return", 2), Address("completion_signal", 14)};
constexpr FieldSpec kVendor[] = {TG_AQL_HEADER, Bits("format", K::kValue, 0, 31, 16)};
constexpr FieldSpec kVendorPm4[] = {TG_AQL_HEADER, Bits("format", K::kValue, 0, 31, 16),
                                    Address("address", 2), Bits("dwords", K::kCount, 4, 19, 0)};

constexpr uint32_t kPm4IndirectBuffer = 0xc0023f00;

}  // namespace

DecodedPacket DecodeAql(std::span<const uint8_t> bytes) {
  DecodedPacket packet;
  packet.dwords = kAqlPacketSize / 4;
  packet.raw = bytes.first(std::min<size_t>(bytes.size() & ~size_t{3}, kAqlPacketSize));
  if (packet.raw.size() < 4) {
    packet.problem = PacketProblem::kTruncated;
    return packet;
  }
  const uint32_t header = Dword(packet.raw, 0);
  packet.op = header & 0xff;
  std::span<const FieldSpec> fields;
  switch (packet.op) {
    case 0: {
      packet.name = "VENDOR";
      fields = kVendor;
      const bool pm4 = packet.raw.size() >= 8 && Dword(packet.raw, 1) == kPm4IndirectBuffer;
      if (pm4) {
        packet.name = "VENDOR_PM4_IB";
        packet.role = R::kIndirect;
        fields = kVendorPm4;
      }
      if (std::all_of(packet.raw.begin(), packet.raw.end(), [](uint8_t b) { return b == 0; })) {
        packet.problem = PacketProblem::kNotAPacket;
      }
      break;
    }
    case 1:
      packet.name = "INVALID";
      packet.problem = PacketProblem::kNotAPacket;
      break;
    case 2:
      packet.name = "KERNEL_DISPATCH";
      packet.role = R::kDispatch;
      fields = kDispatch;
      break;
    case 3:
      packet.name = "BARRIER_AND";
      packet.role = R::kBarrier;
      fields = kBarrier;
      break;
    case 4:
      packet.name = "AGENT_DISPATCH";
      fields = kAgent;
      break;
    case 5:
      packet.name = "BARRIER_OR";
      packet.role = R::kBarrier;
      fields = kBarrier;
      break;
    default:
      packet.problem = PacketProblem::kUnknownOp;
      break;
  }
  if (packet.problem == PacketProblem::kNone && (header & 0xe000)) {
    packet.problem = PacketProblem::kReservedBits;
  }
  AddFields(fields, 0xff, packet.raw, packet.fields);
  if (packet.raw.size() < kAqlPacketSize) packet.problem = PacketProblem::kTruncated;
  return packet;
}

KernelDescriptor DecodeKernelDescriptor(std::span<const uint8_t> bytes) {
  KernelDescriptor d;
  d.lds_bytes = Dword(bytes, 0);
  d.private_bytes = Dword(bytes, 1);
  d.kernarg_bytes = Dword(bytes, 2);
  d.entry_offset = static_cast<int64_t>(static_cast<uint64_t>(Dword(bytes, 4)) |
                                        static_cast<uint64_t>(Dword(bytes, 5)) << 32);
  d.rsrc3 = Dword(bytes, 11);
  d.rsrc1 = Dword(bytes, 12);
  d.rsrc2 = Dword(bytes, 13);
  d.properties = static_cast<uint16_t>(Dword(bytes, 14));
  return d;
}

}  // namespace tg::amd
