#include "schemas/wire/commands.h"

#include <gtest/gtest.h>

#include "tests/wire/hex.h"

namespace tg::wire {
namespace {

using test::Hex;

// Columns as in the protocol's table of 13 commands.
struct Row {
  uint8_t command;
  const char* name;
  bool payload, reply, fd;
  BodyRule body;
};
constexpr Row kRows[] = {
    {0, "PROBE", true, true, false, BodyRule::kResp0},
    {1, "MAP_BAR", false, true, false, BodyRule::kNone},
    {2, "MAP_SYSMEM_FD", false, true, true, BodyRule::kNone},
    {3, "CFG_READ", false, true, false, BodyRule::kNone},
    {4, "CFG_WRITE", false, true, false, BodyRule::kNone},
    {5, "RESET", false, true, false, BodyRule::kNone},
    {6, "MMIO_READ", false, true, false, BodyRule::kArg1},
    {7, "MMIO_WRITE", true, false, false, BodyRule::kNone},
    {8, "MAP_SYSMEM", false, true, false, BodyRule::kResp0},
    {9, "SYSMEM_READ", false, true, false, BodyRule::kArg1},
    {10, "SYSMEM_WRITE", true, false, false, BodyRule::kNone},
    {11, "RESIZE_BAR", false, true, false, BodyRule::kNone},
    {12, "PING", false, true, false, BodyRule::kNone},
};

TEST(Commands, TableIsTheProtocols) {
  for (const Row& row : kRows) {
    const CommandInfo* info = FindCommand(row.command);
    ASSERT_NE(info, nullptr) << row.name;
    EXPECT_EQ(static_cast<uint8_t>(info->command), row.command);
    EXPECT_EQ(info->name, row.name);
    EXPECT_EQ(info->payload, row.payload) << row.name;
    EXPECT_EQ(info->reply, row.reply) << row.name;
    EXPECT_EQ(info->descriptor, row.fd) << row.name;
    EXPECT_EQ(info->body, row.body) << row.name;
    EXPECT_EQ(FindCommandByName(row.name), info);
  }
  EXPECT_EQ(FindCommandByName("mmio_read"), FindCommand(6));
  EXPECT_EQ(FindCommandByName("MMIO_REA"), nullptr);
  for (int c = 13; c < 256; c++) EXPECT_EQ(FindCommand(static_cast<uint8_t>(c)), nullptr);
  EXPECT_EQ(CommandName(200), "command 200");
  EXPECT_EQ(CommandName(7), "MMIO_WRITE");
}

TEST(Commands, RevisionOneKnowsOneToSeven) {
  for (int c = 0; c < 256; c++)
    EXPECT_EQ(FindCommand(static_cast<uint8_t>(c), Revision::kR1) != nullptr, c >= 1 && c <= 7);
}

TEST(Commands, DecodesARequestOfEachRevision) {
  // PROBE for AMD (field report T2) and the two MAP_BAR 5 of B15.
  const auto probe =
      DecodeRequest(Hex("000000000000000000000000000000000040000000000000000210000000000000"));
  EXPECT_EQ(probe, (RequestHeader{0, 0, 0, 0, 0x40, 0x1002}));
  EXPECT_EQ(PayloadSize(probe), 0x40u);
  const auto read =
      DecodeRequest(Hex("0600000000050000001c0103000000000004000000000000000000000000000000"));
  EXPECT_EQ(read, (RequestHeader{6, 0, 5, 0x3011c, 4, 0}));
  const auto r1 = DecodeRequest(Hex("0105 00*24"), Revision::kR1);
  EXPECT_EQ(r1, (RequestHeader{1, 0, 5, 0, 0, 0}));
  const RequestHeader all{
      7, 0x01020304, 0x05060708, 0x1112131415161718, 0x2122232425262728, 0x3132333435363738};
  EXPECT_EQ(DecodeRequest(EncodeRequest(all)), all);
  const RequestHeader old{7, 0, 5, 0x1112131415161718, 0x2122232425262728, 0x3132333435363738};
  EXPECT_EQ(DecodeRequest(EncodeRequestR1(old), Revision::kR1), old);
}

TEST(Commands, StatusIsTheFirstByteOfAReply) {
  // B15: a client that takes the status from the end reads 0x118410de00 here.
  const auto reply = DecodeReply(Hex("00de108411000000000000000000000000"));
  EXPECT_EQ(reply, (ReplyHeader{0, 0x118410de, 0}));
  const auto bytes = EncodeReply(reply);
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()),
            Hex("00de108411000000000000000000000000"));
}

TEST(Commands, MapBarWordsSwapBetweenRevisions) {
  const auto r1 = DecodeReply(Hex("00000010000000000000001000007f0000"));
  const auto r2 = DecodeReply(Hex("0000001000007f00000000100000000000"));
  for (const auto& words : {MapBarWords(r1, Revision::kR1), MapBarWords(r2, Revision::kR2)}) {
    EXPECT_EQ(words.size, 0x100000u);
    EXPECT_EQ(words.address, 0x7f0000100000u);
  }
  EXPECT_EQ(RevisionFromMapBar(r1), Revision::kR1);
  EXPECT_EQ(RevisionFromMapBar(r2), Revision::kR2);
  // Refused, or a TCP server whose physical start is a power of two as well but larger.
  EXPECT_EQ(RevisionFromMapBar({1, 0, 0}), Revision::kUndecided);
  EXPECT_EQ(RevisionFromMapBar({0, 0x1000000000, 0x10000000}), Revision::kR2);
  EXPECT_EQ(RevisionFromMapBar({0, 0x1000, 0x1000}), Revision::kUndecided);
}

TEST(Commands, BodySizes) {
  const RequestHeader read{6, 0, 5, 0x100, 4, 0};
  EXPECT_EQ(BodySize(read, {0, 4, 0}), 4u);
  EXPECT_EQ(BodySize(read, {0, 0x8000, 0}), 4u);  // the client reads what it asked for
  EXPECT_EQ(BodySize(read, {1, 20, 0}), 20u);     // error text
  EXPECT_EQ(BodySize(read, {1, 0, 0}), 0u);
  EXPECT_EQ(BodySize({8, 0, 0, 8192, 0, 0}, {0, 16, 0}), 16u);
  EXPECT_EQ(BodySize({0, 0, 0, 0, 64, 0x1002}, {0, 11, 1}), 11u);
  EXPECT_EQ(BodySize({2, 0, 0, 0x4000, 0, 0}, {0, 0x4000, 0}), 0u);
  EXPECT_EQ(PayloadSize({6, 0, 5, 0, 4, 0}), 0u);
  EXPECT_EQ(PayloadSize({10, 0, 7, 0, 0, 0}), 0u);
}

}  // namespace
}  // namespace tg::wire
