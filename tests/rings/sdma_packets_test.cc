#include "schemas/amd/sdma_packets.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/rings/hex.h"

namespace tg::amd {
namespace {

using test::Bytes;
using test::Dwords;

std::map<std::string, uint64_t> Fields(const DecodedPacket& packet) {
  std::map<std::string, uint64_t> out;
  for (const PacketField& f : packet.fields) out[std::string(f.name)] = f.value;
  return out;
}
using Map = std::map<std::string, uint64_t>;

// Dump of the first submission of a run: host -> VRAM, 16 KiB.
TEST(SdmaPackets, FirstSubmissionOfARealRun) {
  const auto ring = Dwords(
      "d0000008 0100fff0 00002000 00000000 ffffffff 0fff0004"
      "00000001 00003fff 00000000 01400000 00002000 01010000 00002000"
      "00030005 0100fff0 00002000 00000001");
  const std::span<const uint8_t> bytes(ring);

  const DecodedPacket poll = DecodeSdma(bytes, SdmaGen::k6);
  EXPECT_EQ(poll.name, "POLL_REGMEM");
  EXPECT_EQ(poll.dwords, 6u);
  EXPECT_EQ(poll.problem, PacketProblem::kNone);
  EXPECT_EQ(poll.role, PacketRole::kWait);
  EXPECT_EQ(Fields(poll), (Map{{"function", 5},
                               {"mem_poll", 1},
                               {"address", 0x20000100fff0},
                               {"reference", 0},
                               {"mask", 0xffffffff},
                               {"interval", 4},
                               {"retry_count", 0xfff}}));

  const DecodedPacket copy = DecodeSdma(bytes.subspan(24), SdmaGen::k6);
  EXPECT_EQ(copy.name, "COPY_LINEAR");
  EXPECT_EQ(copy.dwords, 7u);
  EXPECT_EQ(Fields(copy),
            (Map{{"bytes", 0x4000}, {"src", 0x200001400000}, {"dst", 0x200001010000}}));

  const DecodedPacket fence = DecodeSdma(bytes.subspan(52), SdmaGen::k6);
  EXPECT_EQ(fence.name, "FENCE");
  EXPECT_EQ(fence.dwords, 4u);
  EXPECT_EQ(Fields(fence), (Map{{"mtype", 3}, {"address", 0x20000100fff0}, {"data", 1}}));
}

// Field report B07, as bytes.
TEST(SdmaPackets, FieldReportB07) {
  const auto ring = Bytes(
      "080000d000100080000000008d010000ffffffff0400ff0f"
      "01000000ff0f00000000000000000010010000000000002001000000"
      "0500030040100080000000008e010000");
  ASSERT_EQ(ring.size(), 68u);
  const std::span<const uint8_t> bytes(ring);
  const auto wait = WaitOf(DecodeSdma(bytes, SdmaGen::k6));
  ASSERT_TRUE(wait);
  EXPECT_TRUE(wait->memory);
  EXPECT_EQ(wait->address, 0x80001000u);
  EXPECT_EQ(CompareText(wait->function), ">=");
  EXPECT_EQ(wait->reference, 397u);
  EXPECT_EQ(wait->mask, 0xffffffffu);
  const auto copy = CopyOf(DecodeSdma(bytes.subspan(24), SdmaGen::k6));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->bytes, 4096u);
  EXPECT_EQ(copy->src, 0x110000000u);
  EXPECT_EQ(copy->dst, 0x120000000u);
  const auto fence = FenceOf(DecodeSdma(bytes.subspan(52), SdmaGen::k6));
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->address, 0x80001040u);
  EXPECT_EQ(fence->value, 0x18eu);
  EXPECT_EQ(fence->bytes, 4u);
}

// The copy count has 22 bits up to SDMA 5 and 30 from 6 on.
TEST(SdmaPackets, CopyCountWidth) {
  const auto ring = Dwords("00000001 3fffffff 00000000 00001000 00000000 00002000 00000000");
  EXPECT_EQ(CopyOf(DecodeSdma(ring, SdmaGen::k6))->bytes, 0x40000000u);
  EXPECT_EQ(CopyOf(DecodeSdma(ring, SdmaGen::k7))->bytes, 0x40000000u);
  EXPECT_EQ(CopyOf(DecodeSdma(ring, SdmaGen::k4))->bytes, 0x400000u);
  EXPECT_EQ(CopyOf(DecodeSdma(ring, SdmaGen::k5))->bytes, 0x400000u);
}

TEST(SdmaPackets, BroadcastCopyIsLonger) {
  const auto ring =
      Dwords("08000001 00000fff 00000000 00001000 00000020 00002000 00000020 00003000 00000020");
  const DecodedPacket packet = DecodeSdma(ring, SdmaGen::k6);
  EXPECT_EQ(packet.name, "COPY_LINEAR_BROADCAST");
  EXPECT_EQ(packet.dwords, 9u);
  const auto copy = CopyOf(packet);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->dst, 0x2000002000u);
  EXPECT_EQ(copy->dst2, 0x2000003000u);
}

TEST(SdmaPackets, TiledBroadcastCopyIsLonger) {
  const auto ring = Dwords(
      "08000101 00001000 00000020 00002000 00000020 0000003f 0001003f 00000000 "
      "00000000 00000000 00000000 00003000 00000020 00000040 00001000 00003fff");
  const DecodedPacket packet = DecodeSdma(ring, SdmaGen::k6);
  EXPECT_EQ(packet.name, "COPY_L2T_BROADCAST");
  EXPECT_EQ(packet.dwords, 16u);
  EXPECT_EQ(packet.problem, PacketProblem::kNone);
  EXPECT_EQ(packet.Get("tiled2"), 0x2000002000u);
  EXPECT_EQ(packet.Get("linear"), 0x2000003000u);
}

TEST(SdmaPackets, RegisterPollHasNoAddress) {
  const auto ring = Dwords("30000008 00000e26 00000e27 00000001 000000ff 0fff0004");
  const auto wait = WaitOf(DecodeSdma(ring, SdmaGen::k6));
  ASSERT_TRUE(wait);
  EXPECT_FALSE(wait->memory);
  EXPECT_EQ(wait->address, 0xe26u);
  EXPECT_EQ(wait->function, 3u);
}

TEST(SdmaPackets, WriteCarriesItsData) {
  const auto ring = Dwords("00000002 01010000 00002000 00000001 11111111 22222222 00000006");
  const DecodedPacket packet = DecodeSdma(ring, SdmaGen::k6);
  EXPECT_EQ(packet.name, "WRITE_LINEAR");
  EXPECT_EQ(packet.dwords, 6u);
  EXPECT_EQ(packet.raw.size(), 24u);
  EXPECT_EQ(Fields(packet), (Map{{"dst", 0x200001010000}, {"dwords", 2}, {"data", 0x11111111}}));
}

TEST(SdmaPackets, TimestampIndirectTrapAndNop) {
  EXPECT_EQ(Fields(DecodeSdma(Dwords("0000020d 0100fff8 00002000"), SdmaGen::k6)),
            (Map{{"address", 0x20000100fff8}}));
  const DecodedPacket ib =
      DecodeSdma(Dwords("00020004 00ab0000 00002000 00000018 00000000 00000000"), SdmaGen::k6);
  EXPECT_EQ(ib.name, "INDIRECT");
  EXPECT_EQ(ib.Get("vmid"), 2u);
  const auto spec = IndirectOf(ib);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->address, 0x200000ab0000u);
  EXPECT_EQ(spec->dwords, 0x18u);
  EXPECT_EQ(DecodeSdma(Dwords("00000006 00000004"), SdmaGen::k6).Get("context"), 4u);
  EXPECT_EQ(DecodeSdma(Dwords("00000000"), SdmaGen::k6).dwords, 1u);
  EXPECT_EQ(DecodeSdma(Dwords("00030000 00000001 00000002 00000003"), SdmaGen::k6).dwords, 4u);
}

// Lengths of all packets, sdma-packets.md section 4.
struct Length {
  SdmaGen gen;
  uint8_t op, sub_op;
  uint32_t dwords;  // 0: not of this generation
};
TEST(SdmaPackets, LengthsOfAllOps) {
  constexpr auto k4 = SdmaGen::k4, k5 = SdmaGen::k5, k6 = SdmaGen::k6, k7 = SdmaGen::k7;
  const Length table[] = {
      {k6, 0, 0, 1},   {k6, 1, 0, 7},   {k6, 1, 1, 13},  {k6, 1, 3, 8},   {k6, 1, 4, 13},
      {k6, 1, 5, 17},  {k4, 1, 5, 14},  {k5, 1, 5, 17},  {k6, 1, 6, 18},  {k4, 1, 6, 15},
      {k6, 1, 7, 7},   {k6, 1, 8, 7},   {k6, 1, 16, 7},  {k4, 1, 16, 0},  {k5, 1, 17, 12},
      {k6, 1, 17, 13}, {k6, 1, 20, 13}, {k6, 1, 21, 14}, {k6, 1, 22, 15}, {k6, 1, 36, 20},
      {k5, 1, 36, 0},  {k7, 1, 36, 20}, {k6, 2, 0, 5},   {k6, 2, 1, 10},  {k6, 2, 17, 10},
      {k6, 4, 0, 6},   {k6, 5, 0, 4},   {k6, 6, 0, 2},   {k6, 7, 0, 3},   {k6, 7, 1, 3},
      {k5, 7, 1, 0},   {k6, 8, 0, 6},   {k6, 8, 1, 4},   {k6, 8, 2, 5},   {k6, 8, 3, 13},
      {k6, 8, 4, 4},   {k4, 8, 4, 0},   {k6, 9, 0, 5},   {k6, 10, 0, 8},  {k6, 11, 0, 5},
      {k6, 11, 1, 6},  {k6, 12, 0, 10}, {k6, 12, 1, 8},  {k6, 12, 2, 8},  {k4, 12, 2, 7},
      {k5, 12, 2, 7},  {k6, 12, 3, 7},  {k6, 13, 0, 3},  {k6, 13, 1, 3},  {k6, 13, 2, 3},
      {k6, 14, 0, 3},  {k6, 14, 1, 5},  {k4, 14, 1, 0},  {k6, 15, 0, 2},  {k4, 16, 0, 2},
      {k5, 16, 0, 4},  {k6, 17, 0, 5},  {k4, 17, 0, 0},  {k6, 32, 0, 2},  {k4, 32, 0, 0},
      {k6, 3, 0, 0},   {k6, 33, 0, 0},  {k6, 255, 9, 0}, {k6, 5, 1, 0}};
  for (const Length& row : table) {
    std::vector<uint8_t> bytes(128, 0);
    bytes[0] = row.op;
    bytes[1] = row.sub_op;
    const DecodedPacket packet = DecodeSdma(bytes, row.gen);
    EXPECT_EQ(packet.dwords, row.dwords) << "op " << int(row.op) << "/" << int(row.sub_op);
    EXPECT_EQ(packet.dwords == 0, packet.problem == PacketProblem::kUnknownOp ||
                                      packet.problem == PacketProblem::kOtherGeneration);
    EXPECT_FALSE(packet.fields.more());
  }
}

TEST(SdmaPackets, Problems) {
  EXPECT_EQ(DecodeSdma({}, SdmaGen::k6).problem, PacketProblem::kTruncated);
  EXPECT_EQ(DecodeSdma(Bytes("0500"), SdmaGen::k6).problem, PacketProblem::kTruncated);
  const DecodedPacket cut = DecodeSdma(Dwords("00030005 0100fff0 00002000"), SdmaGen::k6);
  EXPECT_EQ(cut.problem, PacketProblem::kTruncated);
  EXPECT_EQ(cut.dwords, 4u);
  EXPECT_FALSE(FenceOf(cut));
  // A write whose count is not there: the length is not known.
  EXPECT_EQ(DecodeSdma(Dwords("00000002 00000001 00000002"), SdmaGen::k6).dwords, 0u);
  // FENCE of SDMA 4 has no mtype.
  EXPECT_EQ(DecodeSdma(Dwords("00030005 0100fff0 00002000 00000001"), SdmaGen::k4).problem,
            PacketProblem::kReservedBits);
  EXPECT_EQ(DecodeSdma(Dwords("00000005 0100fff0 00002000 00000001"), SdmaGen::k4).problem,
            PacketProblem::kNone);
  EXPECT_EQ(DecodeSdma(Dwords("f0000008 0100fff0 00002000 00000000 ffffffff 0fff0004"), SdmaGen::k6)
                .problem,
            PacketProblem::kBadValue);
  EXPECT_EQ(DecodeSdma(Dwords("00000011 00000000 00000000 00000000 00000000"), SdmaGen::k4).problem,
            PacketProblem::kOtherGeneration);
  EXPECT_EQ(DecodeSdma(Dwords("00000011 00000000 00000000 00000000 00000000"), SdmaGen::k4).name,
            "GCR_REQ");
  EXPECT_EQ(DecodeSdma(Dwords("10000005 00000000 00000000"), SdmaGen::k7).problem,
            PacketProblem::kTruncated);
  EXPECT_EQ(DecodeSdma(Dwords("10000005 00000000 00000000 00000000"), SdmaGen::k7).problem,
            PacketProblem::kBadLength);
}

TEST(SdmaPackets, Generation) {
  EXPECT_EQ(SdmaGenOf(4), SdmaGen::k4);
  EXPECT_EQ(SdmaGenOf(5), SdmaGen::k5);
  EXPECT_EQ(SdmaGenOf(6), SdmaGen::k6);
  EXPECT_EQ(SdmaGenOf(7), SdmaGen::k7);
  EXPECT_EQ(SdmaGenOf(0), SdmaGen::k4);
  EXPECT_EQ(SdmaGenOf(9), SdmaGen::k7);
}

TEST(SdmaPackets, Comparisons) {
  // function, value, holds for reference 5 under mask 0xff
  struct {
    uint32_t function, value;
    bool holds;
  } const table[] = {{0, 9, true},      {1, 4, true},     {1, 5, false}, {2, 5, true},
                     {2, 6, false},     {3, 0x105, true}, {3, 6, false}, {4, 6, true},
                     {4, 0x105, false}, {5, 5, true},     {5, 4, false}, {6, 6, true},
                     {6, 5, false},     {7, 5, false}};
  for (const auto& row : table) {
    EXPECT_EQ(CompareHolds(row.function, row.value, 5, 0xff), row.holds)
        << row.function << " " << row.value;
  }
}

}  // namespace
}  // namespace tg::amd
