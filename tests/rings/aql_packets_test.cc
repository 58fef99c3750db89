#include "schemas/amd/aql_packets.h"

#include <gtest/gtest.h>

#include "tests/rings/hex.h"

namespace tg::amd {
namespace {

using test::Dwords;

TEST(AqlPackets, Dispatch) {
  // group 256 x 1 x 1, grid 4096 x 2 x 1, descriptor 0x2000_0001_0040, kernarg 0x2000_0002_0000
  const auto bytes = Dwords(
      "00031502 00010100 00000001 00001000 00000002 00000001 00000010 00000200"
      "00010040 00002000 00020000 00002000 00000000 00000000 00000000 00000000");
  const DecodedPacket packet = DecodeAql(bytes);
  EXPECT_EQ(packet.name, "KERNEL_DISPATCH");
  EXPECT_EQ(packet.problem, PacketProblem::kNone);
  EXPECT_EQ(packet.bytes(), 64u);
  EXPECT_EQ(packet.role, PacketRole::kDispatch);
  EXPECT_EQ(packet.Get("barrier"), 1u);
  EXPECT_EQ(packet.Get("acquire"), 2u);
  EXPECT_EQ(packet.Get("release"), 2u);
  EXPECT_EQ(packet.Get("dimensions"), 3u);
  EXPECT_EQ(packet.Get("group_x"), 256u);
  EXPECT_EQ(packet.Get("group_y"), 1u);
  EXPECT_EQ(packet.Get("group_z"), 1u);
  EXPECT_EQ(packet.Get("grid_x"), 4096u);
  EXPECT_EQ(packet.Get("grid_y"), 2u);
  EXPECT_EQ(packet.Get("private_bytes"), 16u);
  EXPECT_EQ(packet.Get("lds_bytes"), 512u);
  EXPECT_EQ(packet.Get("kernel_object"), 0x200000010040u);
  EXPECT_EQ(packet.Get("kernarg"), 0x200000020000u);
}

TEST(AqlPackets, VendorPacketWithPm4) {
  const auto bytes = Dwords(
      "00011500 c0023f00 00ab0000 00002000 00800030 0000000a 00000000 00000000"
      "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000");
  const DecodedPacket packet = DecodeAql(bytes);
  EXPECT_EQ(packet.name, "VENDOR_PM4_IB");
  EXPECT_EQ(packet.Get("format"), 1u);
  const auto ib = IndirectOf(packet);
  ASSERT_TRUE(ib);
  EXPECT_EQ(ib->address, 0x200000ab0000u);
  EXPECT_EQ(ib->dwords, 0x30u);
}

TEST(AqlPackets, Problems) {
  EXPECT_EQ(DecodeAql(std::vector<uint8_t>(64)).problem, PacketProblem::kNotAPacket);
  std::vector<uint8_t> bytes(64);
  bytes[0] = 1;
  EXPECT_EQ(DecodeAql(bytes).problem, PacketProblem::kNotAPacket);
  bytes[0] = 77;
  EXPECT_EQ(DecodeAql(bytes).problem, PacketProblem::kUnknownOp);
  bytes[0] = 2;
  EXPECT_EQ(DecodeAql(std::span(bytes).first(40)).problem, PacketProblem::kTruncated);
  EXPECT_EQ(DecodeAql({}).problem, PacketProblem::kTruncated);
  bytes[1] = 0xe0;
  EXPECT_EQ(DecodeAql(bytes).problem, PacketProblem::kReservedBits);
  bytes = std::vector<uint8_t>(64);
  bytes[0] = 3;
  bytes[8] = 0x40;
  EXPECT_EQ(DecodeAql(bytes).name, "BARRIER_AND");
  EXPECT_EQ(DecodeAql(bytes).Get("signal0"), 0x40u);
}

TEST(AqlPackets, KernelDescriptor) {
  const auto bytes = Dwords(
      "00000400 00000020 00000018 00000000 ffffff00 ffffffff 00000000 00000000"
      "00000000 00000000 00000000 00000003 00000001 00000002 00000408 00000000");
  const KernelDescriptor d = DecodeKernelDescriptor(bytes);
  EXPECT_EQ(d.lds_bytes, 0x400u);
  EXPECT_EQ(d.private_bytes, 0x20u);
  EXPECT_EQ(d.kernarg_bytes, 0x18u);
  EXPECT_EQ(d.entry_offset, -256);
  EXPECT_EQ(d.rsrc3, 3u);
  EXPECT_EQ(d.rsrc1, 1u);
  EXPECT_EQ(d.rsrc2, 2u);
  EXPECT_EQ(d.properties >> 10 & 1, 1);
}

}  // namespace
}  // namespace tg::amd
