#include "schemas/amd/pm4_packets.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/rings/hex.h"

namespace tg::amd {
namespace {

using test::Dwords;
using Map = std::map<std::string, uint64_t>;

Map Fields(const DecodedPacket& packet) {
  Map out;
  for (const PacketField& f : packet.fields) out[std::string(f.name)] = f.value;
  return out;
}

// Dump of a run (invalidate_caches and a signal).
TEST(Pm4Packets, BarrierAndSignalOfARealRun) {
  const auto ring = Dwords(
      "c0053c00 00000045 00000e26 00000e27 ffffffff ffffffff 00000004"
      "c0065800 00000000 ffffffff ffffffff 00000000 00000000 00000000 0000c3f1"
      "c0064900 0070f514 20000000 0100fff0 00002000 00000001 00000000 00000000");
  const std::span<const uint8_t> bytes(ring);
  const DecodedPacket wait = DecodePm4(bytes, Pm4Gen::kGfx12);
  EXPECT_EQ(wait.name, "WAIT_REG_MEM");
  EXPECT_EQ(wait.dwords, 7u);
  EXPECT_EQ(wait.problem, PacketProblem::kNone);
  EXPECT_EQ(Fields(wait), (Map{{"function", 5},
                               {"operation", 1},
                               {"write_register", 0xe26},
                               {"register", 0xe27},
                               {"reference", 0xffffffff},
                               {"mask", 0xffffffff},
                               {"interval", 4}}));
  const auto spec = WaitOf(wait);
  ASSERT_TRUE(spec);
  EXPECT_FALSE(spec->memory);
  EXPECT_EQ(spec->address, 0xe27u);

  const DecodedPacket acquire = DecodePm4(bytes.subspan(28), Pm4Gen::kGfx12);
  EXPECT_EQ(acquire.name, "ACQUIRE_MEM");
  EXPECT_EQ(acquire.dwords, 8u);
  EXPECT_EQ(
      Fields(acquire),
      (Map{{"size", 0xffffffffffffffff}, {"base", 0}, {"interval", 0}, {"gcr_cntl", 0xc3f1}}));

  const DecodedPacket release = DecodePm4(bytes.subspan(60), Pm4Gen::kGfx12);
  EXPECT_EQ(release.name, "RELEASE_MEM");
  EXPECT_EQ(release.role, PacketRole::kSignal);
  const auto fence = FenceOf(release);
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->address, 0x20000100fff0u);
  EXPECT_EQ(fence->value, 1u);
  EXPECT_EQ(fence->bytes, 4u);
  EXPECT_EQ(release.Get("event"), 0x14u);
  EXPECT_EQ(release.Get("event_index"), 5u);
  EXPECT_EQ(release.Get("data_sel"), 1u);
}

TEST(Pm4Packets, MemoryWait) {
  const auto wait = WaitOf(DecodePm4(
      Dwords("c0053c00 00000015 0100fff0 00002000 00000007 ffffffff 00000004"), Pm4Gen::kGfx11));
  ASSERT_TRUE(wait);
  EXPECT_TRUE(wait->memory);
  EXPECT_EQ(wait->address, 0x20000100fff0u);
  EXPECT_EQ(CompareText(wait->function), ">=");
  EXPECT_EQ(wait->reference, 7u);
}

// data_sel decides what a RELEASE_MEM is.
TEST(Pm4Packets, ReleaseMemRoles) {
  const auto with = [](const char* dw2) {
    return DecodePm4(Dwords(std::string("c0064900 00000514 ") + dw2 +
                            " 0100fff8 00002000 00000005 00000001 00000000"),
                     Pm4Gen::kGfx11);
  };
  EXPECT_EQ(with("02000000").role, PacketRole::kBarrier);
  EXPECT_FALSE(FenceOf(with("02000000")));
  EXPECT_EQ(with("20000000").role, PacketRole::kSignal);
  EXPECT_EQ(FenceOf(with("20000000"))->value, 5u);
  const auto wide = FenceOf(with("40000000"));
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide->value, 0x100000005u);
  EXPECT_EQ(wide->bytes, 8u);
  EXPECT_EQ(with("60000000").role, PacketRole::kTimestamp);
  EXPECT_FALSE(FenceOf(with("60000000")));
}

TEST(Pm4Packets, RegistersOfADispatch) {
  const DecodedPacket pgm =
      DecodePm4(Dwords("c0027600 0000020c 00ab0010 00000020"), Pm4Gen::kGfx11);
  EXPECT_EQ(pgm.name, "SET_SH_REG");
  EXPECT_EQ(pgm.role, PacketRole::kState);
  EXPECT_EQ(pgm.dwords, 4u);
  EXPECT_EQ(
      Fields(pgm),
      (Map{{"code", 0x2000ab001000}, {"COMPUTE_PGM_LO", 0xab0010}, {"COMPUTE_PGM_HI", 0x20}}));
  EXPECT_EQ(pgm.Find("COMPUTE_PGM_LO")->reg, 0x2e0cu);

  const DecodedPacket user =
      DecodePm4(Dwords("c0047600 00000240 11111111 22222222 00cd0000 00002000"), Pm4Gen::kGfx11);
  EXPECT_EQ(user.Get("kernarg"), 0x200000cd0000u);
  EXPECT_EQ(user.Get("COMPUTE_USER_DATA_3"), 0x2000u);

  // RSRC3 moved after gfx9.
  EXPECT_EQ(ShRegisterName(0x2e28, Pm4Gen::kGfx12), "COMPUTE_PGM_RSRC3");
  EXPECT_EQ(ShRegisterName(0x2e28, Pm4Gen::kGfx9), "");
  EXPECT_EQ(ShRegisterName(0x2e2d, Pm4Gen::kGfx9), "COMPUTE_PGM_RSRC3");

  const DecodedPacket go =
      DecodePm4(Dwords("c0031500 00000004 00000002 00000001 00008005"), Pm4Gen::kGfx11);
  EXPECT_EQ(go.role, PacketRole::kDispatch);
  EXPECT_EQ(Fields(go),
            (Map{{"groups_x", 4}, {"groups_y", 2}, {"groups_z", 1}, {"initiator", 0x8005}}));

  const DecodedPacket uconfig = DecodePm4(Dwords("c0017900 00000200 e0000000"), Pm4Gen::kGfx11);
  EXPECT_EQ(uconfig.name, "SET_UCONFIG_REG");
  ASSERT_EQ(uconfig.fields.size(), 1u);
  EXPECT_EQ(uconfig.fields[0].reg, 0xc200u);
}

TEST(Pm4Packets, IndirectEventPredicateAndCopy) {
  const auto ib =
      IndirectOf(DecodePm4(Dwords("c0023f00 00ab0000 00002000 00800123"), Pm4Gen::kGfx9));
  ASSERT_TRUE(ib);
  EXPECT_EQ(ib->address, 0x200000ab0000u);
  EXPECT_EQ(ib->dwords, 0x123u);
  const DecodedPacket event = DecodePm4(Dwords("c0004600 00000407"), Pm4Gen::kGfx11);
  EXPECT_EQ(Fields(event), (Map{{"event", 7}, {"event_index", 4}}));
  const DecodedPacket pred = DecodePm4(Dwords("c0002300 01000008"), Pm4Gen::kGfx9);
  EXPECT_EQ(Fields(pred), (Map{{"xcc_mask", 1}, {"dwords", 8}}));
  const DecodedPacket copy =
      DecodePm4(Dwords("c0044000 00110204 00001234 00000000 00ab0000 00002000"), Pm4Gen::kGfx11);
  EXPECT_EQ(copy.name, "COPY_DATA");
  EXPECT_EQ(copy.Get("src_sel"), 4u);
  EXPECT_EQ(copy.Get("dst_sel"), 2u);
  EXPECT_EQ(copy.Get("wide"), 1u);
  EXPECT_EQ(copy.Get("to"), 0x200000ab0000u);
  EXPECT_FALSE(CopyOf(copy));
}

// The same opcode is shorter on gfx9.
TEST(Pm4Packets, AcquireMemByGeneration) {
  const auto nine = Dwords("c0055800 28c40000 ffffffff 000000ff 00000000 00000000 0000000a");
  EXPECT_EQ(DecodePm4(nine, Pm4Gen::kGfx9).problem, PacketProblem::kNone);
  EXPECT_EQ(DecodePm4(nine, Pm4Gen::kGfx9).Get("cp_coher_cntl"), 0x28c40000u);
  EXPECT_EQ(DecodePm4(nine, Pm4Gen::kGfx11).problem, PacketProblem::kBadLength);
}

TEST(Pm4Packets, UnknownOpcodesByNumberAndLength) {
  const DecodedPacket packet = DecodePm4(Dwords("c0020200 00000001 00000002"), Pm4Gen::kGfx11);
  EXPECT_EQ(packet.name, "");
  EXPECT_EQ(packet.op, 2u);
  EXPECT_EQ(packet.dwords, 4u);
  EXPECT_EQ(packet.problem, PacketProblem::kTruncated);
  const DecodedPacket whole = DecodePm4(Dwords("c0010200 00000001 00000002"), Pm4Gen::kGfx11);
  EXPECT_EQ(whole.problem, PacketProblem::kUnknownOp);
  EXPECT_EQ(whole.dwords, 3u);
  EXPECT_EQ(DecodePm4(Dwords("c0004100 00000001"), Pm4Gen::kGfx9).problem,
            PacketProblem::kOtherGeneration);
  EXPECT_EQ(DecodePm4(Dwords("c0004100 00000001"), Pm4Gen::kGfx11).name, "CP_DMA");
}

TEST(Pm4Packets, OtherTypes) {
  EXPECT_EQ(DecodePm4(Dwords("00000000"), Pm4Gen::kGfx11).problem, PacketProblem::kNotAPacket);
  EXPECT_EQ(DecodePm4(Dwords("40000000"), Pm4Gen::kGfx11).problem, PacketProblem::kNotAPacket);
  EXPECT_EQ(DecodePm4(Dwords("80000000"), Pm4Gen::kGfx11).dwords, 1u);
  EXPECT_EQ(DecodePm4(Dwords("80000000"), Pm4Gen::kGfx11).role, PacketRole::kNop);
  const DecodedPacket type0 = DecodePm4(Dwords("00012e0c 00000005 00000006"), Pm4Gen::kGfx11);
  EXPECT_EQ(type0.dwords, 3u);
  ASSERT_EQ(type0.fields.size(), 2u);
  EXPECT_EQ(type0.fields[1].reg, 0x2e0du);
  EXPECT_EQ(DecodePm4(Dwords("ffff1000"), Pm4Gen::kGfx11).dwords, 1u);  // one-dword NOP
  EXPECT_EQ(DecodePm4({}, Pm4Gen::kGfx11).problem, PacketProblem::kTruncated);
}

TEST(Pm4Packets, LongRegisterWritesKeepTheFirstFields) {
  std::vector<uint8_t> bytes = Dwords("c1007600 00000240");  // 0x100 values
  bytes.resize(4 * 0x102);
  const DecodedPacket packet = DecodePm4(bytes, Pm4Gen::kGfx11);
  EXPECT_EQ(packet.dwords, 0x102u);
  EXPECT_EQ(packet.fields.size(), FieldList::kCapacity);
  EXPECT_TRUE(packet.fields.more());
}

TEST(Pm4Packets, Generation) {
  EXPECT_EQ(Pm4GenOf(9), Pm4Gen::kGfx9);
  EXPECT_EQ(Pm4GenOf(11), Pm4Gen::kGfx11);
  EXPECT_EQ(Pm4GenOf(12), Pm4Gen::kGfx12);
}

}  // namespace
}  // namespace tg::amd
