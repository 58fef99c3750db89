#include "schemas/amd/packet_walker.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/rings/hex.h"

namespace tg::amd {
namespace {

using test::Append;
using test::Dwords;

const PacketFormat kSdma{.format = RingFormat::kSdma};
const PacketFormat kPm4{.format = RingFormat::kPm4};
const PacketFormat kAql{.format = RingFormat::kAql};

constexpr char kPoll[] = "d0000008 0100fff0 00002000 00000000 ffffffff 0fff0004";
constexpr char kCopy[] = "00000001 00003fff 00000000 01400000 00002000 01010000 00002000";
constexpr char kFence[] = "00030005 0100fff0 00002000 00000001";
constexpr char kWait[] = "c0053c00 00000015 0100fff0 00002000 00000007 ffffffff 00000004";
constexpr char kSignal[] =
    "c0064900 0070f514 20000000 0100fff0 00002000 00000001 00000000 00000000";

// "POLL_REGMEM@0+24 COPY_LINEAR@24+28 ..." and checks that nothing is left out or taken twice.
std::string Walk(std::span<const uint8_t> bytes, const PacketFormat& format) {
  PacketWalker walker(bytes, format);
  WalkItem item;
  std::string out;
  size_t at = 0;
  while (walker.Next(item)) {
    EXPECT_EQ(item.offset, at);
    EXPECT_GT(item.size, 0u);
    at = item.offset + item.size;
    if (!out.empty()) out += ' ';
    if (item.kind == WalkItem::Kind::kPacket) {
      out += item.packet.name.empty() ? "op" + std::to_string(item.packet.op)
                                      : std::string(item.packet.name);
    } else {
      out += '<' + std::string(WalkKindText(item.kind)) + '>';
    }
    out += '@' + std::to_string(item.offset) + '+' + std::to_string(item.size);
  }
  EXPECT_EQ(at, bytes.size());
  return out;
}

std::vector<uint8_t> Submission() {
  auto bytes = Dwords(kPoll);
  Append(bytes, Dwords(kCopy));
  Append(bytes, Dwords(kFence));
  return bytes;
}

TEST(PacketWalker, OneSubmission) {
  EXPECT_EQ(Walk(Submission(), kSdma), "POLL_REGMEM@0+24 COPY_LINEAR@24+28 FENCE@52+16");
  EXPECT_EQ(Walk({}, kSdma), "");
}

TEST(PacketWalker, WrapPaddingIsFolded) {
  auto bytes = Submission();
  bytes.resize(bytes.size() + 0x40);
  Append(bytes, Submission());
  EXPECT_EQ(Walk(bytes, kSdma),
            "POLL_REGMEM@0+24 COPY_LINEAR@24+28 FENCE@52+16 <padding>@68+64 "
            "POLL_REGMEM@132+24 COPY_LINEAR@156+28 FENCE@184+16");
}

TEST(PacketWalker, ResynchronisesAfterGarbage) {
  auto bytes = Submission();
  Append(bytes, Dwords("deadbeef cafebabe 12345678"));
  Append(bytes, Submission());
  EXPECT_EQ(Walk(bytes, kSdma),
            "POLL_REGMEM@0+24 COPY_LINEAR@24+28 FENCE@52+16 <not packets>@68+12 "
            "POLL_REGMEM@80+24 COPY_LINEAR@104+28 FENCE@132+16");
  // Starting in the middle of a packet.
  EXPECT_EQ(Walk(std::span<const uint8_t>(bytes).subspan(8, 60), kSdma),
            "<not packets>@0+16 COPY_LINEAR@16+28 FENCE@44+16");
}

TEST(PacketWalker, GarbageUpToTheEnd) {
  auto bytes = Submission();
  Append(bytes, Dwords("deadbeef cafebabe 12345678"));
  EXPECT_EQ(Walk(bytes, kSdma),
            "POLL_REGMEM@0+24 COPY_LINEAR@24+28 FENCE@52+16 <not packets>@68+12");
  Append(bytes, std::vector<uint8_t>(16));
  EXPECT_EQ(Walk(bytes, kSdma),
            "POLL_REGMEM@0+24 COPY_LINEAR@24+28 FENCE@52+16 <not packets>@68+12 <padding>@80+16");
}

TEST(PacketWalker, CutOff) {
  const auto bytes = Submission();
  EXPECT_EQ(Walk(std::span<const uint8_t>(bytes).first(40), kSdma),
            "POLL_REGMEM@0+24 <cut off>@24+16");
  EXPECT_EQ(Walk(std::span<const uint8_t>(bytes).first(26), kSdma),
            "POLL_REGMEM@0+24 <cut off>@24+2");
}

// A write packet whose count was overwritten does not swallow the submissions behind it.
TEST(PacketWalker, AbsurdLengthDoesNotSwallowTheRest) {
  auto bytes = Dwords("00000002 01010000 00002000 000fffff 00000001");
  Append(bytes, Submission());
  EXPECT_EQ(Walk(bytes, kSdma),
            "<not packets>@0+20 POLL_REGMEM@20+24 COPY_LINEAR@44+28 FENCE@72+16");
}

// protocol.md section 5: the head of a fresh ring.
TEST(PacketWalker, AddressTableIsNotReadAsPackets) {
  auto table = Dwords("01004000 00000001 01000000 00000000 00000000 00000000 00000000 00000000");
  EXPECT_EQ(AddressTableSize(table), 32u);
  EXPECT_EQ(Walk(table, kSdma), "<address table, not packets>@0+32");
  EXPECT_EQ(Walk(table, kPm4), "<address table, not packets>@0+32");
  // Three ranges, the first at an address that would read as a NOP with a count.
  const auto several = Dwords(
      "00300000 00000001 00004000 00000000 02000000 00000001 00100000 00000000"
      "03000000 00000001 00efc000 00000000 00000000 00000000 00000000 00000000");
  EXPECT_EQ(AddressTableSize(several), 64u);
  EXPECT_EQ(Walk(several, kSdma), "<address table, not packets>@0+64");
  EXPECT_EQ(AddressTableSize(Submission()), 0u);
  EXPECT_EQ(AddressTableSize(std::vector<uint8_t>(64)), 0u);
}

TEST(PacketWalker, Pm4) {
  auto bytes = Dwords(kWait);
  Append(bytes, Dwords("c0010200 00000001 00000002"));  // not in the table
  Append(bytes, Dwords("80000000 80000000"));
  Append(bytes, Dwords(kSignal));
  Append(bytes, std::vector<uint8_t>(12));
  EXPECT_EQ(Walk(bytes, kPm4),
            "WAIT_REG_MEM@0+28 op2@28+12 <padding>@40+8 RELEASE_MEM@48+32 <unwritten>@80+12");
}

TEST(PacketWalker, Pm4Resynchronises) {
  auto bytes = Dwords(kWait);
  Append(bytes, Dwords("4badf00d 01234567 c0055800 00000000"));
  Append(bytes, Dwords(kWait));
  Append(bytes, Dwords(kSignal));
  EXPECT_EQ(Walk(bytes, kPm4),
            "WAIT_REG_MEM@0+28 <not packets>@28+16 WAIT_REG_MEM@44+28 RELEASE_MEM@72+32");
}

TEST(PacketWalker, AqlSlots) {
  std::vector<uint8_t> bytes(64 * 4 + 20);
  bytes[0] = 2, bytes[1] = 0x15;
  bytes[64] = 1;
  bytes[128] = 99;
  EXPECT_EQ(Walk(bytes, kAql),
            "KERNEL_DISPATCH@0+64 <unwritten>@64+64 <not packets>@128+64 <unwritten>@192+64 "
            "<cut off>@256+20");
}

// Bounded: whatever is in it, in time linear in the size. 16 MiB, all three formats.
TEST(PacketWalker, SixteenMebibytesOfRandomPackets) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(16 << 20);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const uint32_t word = random();
    for (int b = 0; b < 4; ++b) bytes[i + b] = static_cast<uint8_t>(word >> (8 * b));
  }
  for (const PacketFormat& format : {kSdma, kPm4, kAql}) {
    PacketWalker walker(bytes, format);
    WalkItem item;
    size_t covered = 0, packets = 0;
    while (walker.Next(item)) {
      ASSERT_EQ(item.offset, covered);
      ASSERT_GT(item.size, 0u);
      covered += item.size;
      packets += item.kind == WalkItem::Kind::kPacket;
    }
    EXPECT_EQ(covered, bytes.size());
    // Noise is told from packets: of four million dwords at most one in a thousand passes.
    if (format.format != RingFormat::kAql) {
      EXPECT_LT(packets, 4000u);
    }
  }
}

// Headers that all look good but lead nowhere: the worst case for finding step again.
TEST(PacketWalker, ManyFalseStarts) {
  std::vector<uint8_t> bytes;
  const auto nop = Dwords("fff01000");  // NOP, 0x3ff0 + 2 dwords
  for (int i = 0; i < 200000; ++i) Append(bytes, nop);
  Append(bytes, std::vector<uint8_t>(1 << 20));
  Append(bytes, Dwords("4badf00d"));
  PacketWalker walker(bytes, kPm4);
  WalkItem item;
  size_t covered = 0;
  while (walker.Next(item)) covered += item.size;
  EXPECT_EQ(covered, bytes.size());
}

}  // namespace
}  // namespace tg::amd
