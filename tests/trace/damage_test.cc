// Files that are cut, flipped, overwritten, or no traces at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/encode.h"
#include "schemas/trace/wire_format.h"
#include "tests/trace/testing.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// A line without call number and time, which are lower bounds after damage.
std::string Shape(const std::string& line) {
  return line.substr(line.find(' ', line.find('@')));
}

std::vector<std::string> Shapes(const std::vector<std::string>& lines) {
  std::vector<std::string> shapes;
  for (const std::string& line : lines) shapes.push_back(Shape(line));
  return shapes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes AsBytes(std::string_view text) {
  return {text.begin(), text.end()};
}

// A packet around any message bytes, with a checksum that holds.
Bytes Sealed(const Bytes& message) {
  Bytes packet = {pb::kPacketTag};
  uint8_t size[10];
  packet.insert(packet.end(), size, pb::PutVarint(size, message.size() + pb::kCrcField));
  packet.insert(packet.end(), message.begin(), message.end());
  packet.push_back(pb::kCrcKey);
  const uint32_t crc = Crc32c(message);
  for (int i = 0; i < 4; i++) packet.push_back(static_cast<uint8_t>(crc >> (8 * i)));
  return packet;
}

class Damage : public ::testing::Test {
 protected:
  // The packet that byte `at` belongs to.
  size_t PacketAt(size_t at) const {
    const auto next = std::upper_bound(whole_.offsets.begin(), whole_.offsets.end(), at);
    return whole_.offsets[static_cast<size_t>(next - whole_.offsets.begin()) - 1];
  }
  const Bytes bytes_ = EveryKind();
  const ReadResult whole_ = ReadAll(bytes_);
};

TEST_F(Damage, TheWholeFileHasEveryKindOfPacket) {
  EXPECT_EQ(whole_.end, EndState::kClean);
  EXPECT_EQ(whole_.good_end, bytes_.size());
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromArray(bytes_.data(), static_cast<int>(bytes_.size())));
  std::set<std::string> fields, ops;
  for (const proto::Packet& packet : trace.packet()) {
    std::vector<const google::protobuf::FieldDescriptor*> present;
    packet.GetReflection()->ListFields(packet, &present);
    for (const auto* field : present) fields.insert(field->name());
    ops.insert(proto::Op_Name(packet.op()));
  }
  const auto* type = proto::Packet::descriptor();
  for (int i = 0; i < type->field_count(); i++)
    EXPECT_TRUE(fields.count(type->field(i)->name())) << type->field(i)->name();
  for (int op = 1; op <= 26; op++)
    EXPECT_TRUE(ops.count(proto::Op_Name(static_cast<proto::Op>(op)))) << op;
  EXPECT_EQ(static_cast<uint64_t>(trace.packet_size()), whole_.packets);
}

TEST_F(Damage, CutAtEveryByte) {
  for (size_t cut = 1; cut < bytes_.size(); cut++) {
    const ReadResult result = ReadAll(Bytes(bytes_.begin(), bytes_.begin() + cut));
    ASSERT_EQ(result.error, "") << cut;
    size_t want = 0;
    while (want < whole_.lines.size() && PacketAt(whole_.offsets[want]) + 1 <= cut &&
           (PacketAt(cut) != whole_.offsets[want]))
      want++;
    ASSERT_EQ(result.lines,
              std::vector<std::string>(whole_.lines.begin(), whole_.lines.begin() + want))
        << cut;
    const bool between = PacketAt(cut) == cut;
    ASSERT_EQ(result.end, between ? EndState::kNotClosed : EndState::kTruncated) << cut;
    ASSERT_EQ(result.good_end, PacketAt(cut)) << cut;
    ASSERT_TRUE(result.skipped.empty()) << cut;
  }
}

TEST_F(Damage, EveryByteFlipped) {
  int lost = 0;
  for (size_t at = 0; at < bytes_.size(); at++) {
    // Every bit, all bits, and a zero (which could pass for the end of the file).
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 0xff, 0}) {
      Bytes broken = bytes_;
      broken[at] = flip == 0 ? 0 : broken[at] ^ static_cast<uint8_t>(flip);
      const ReadResult result = ReadAll(broken);
      ASSERT_EQ(result.error, "") << at;
      const size_t hit = PacketAt(at);
      std::vector<std::string> without;
      std::vector<std::string> all = Shapes(whole_.lines);
      for (size_t i = 0; i < all.size(); i++) {
        if (whole_.offsets[i] != hit) without.push_back(all[i]);
      }
      std::vector<std::string> got = Shapes(result.lines);
      if (got == without) {
        lost++;
        if (hit != whole_.offsets.back()) {
          ASSERT_EQ(result.skipped.size(), 1u) << at;
          ASSERT_EQ(result.skipped[0].offset, hit) << at;
        }
        continue;
      }
      // Otherwise it must be a place that changes while a file is written: the slots of an open
      // request, or one of a Repeat's two states (the other then says one step less).
      for (std::string& line : all) {
        const size_t state = line.find("repeat 8/8");
        if (state != std::string::npos && got.size() == all.size() &&
            got[static_cast<size_t>(&line - all.data())].find("repeat 8/7") != std::string::npos)
          line.replace(state, 10, "repeat 8/7");
      }
      ASSERT_EQ(got, all) << "byte " << at << " flip " << flip;
      ASSERT_TRUE(result.skipped.empty());
    }
  }
  EXPECT_GT(lost, static_cast<int>(bytes_.size()) * 7);
}

TEST_F(Damage, NumbersAndTimesAreRightAgainFromTheNextMarker) {
  TestTrace t;
  for (uint32_t i = 0; i < 20'000; i++) t.Read4(0, 4 * i, i);
  t.Close();
  Bytes bytes = t.Bytes();
  const ReadResult whole = ReadAll(bytes);
  ASSERT_EQ(whole.calls, 20'000u);
  bytes[whole.offsets[100] + 3] ^= 1;  // call 49's or 50's packet
  const ReadResult result = ReadAll(bytes);
  ASSERT_EQ(result.lines.size(), whole.lines.size() - 2);
  size_t wrong = 0;
  for (size_t i = 0; i < result.lines.size(); i++) {
    const std::string& want = whole.lines[i < 100 ? i : i + 2];
    if (result.after_damage[i]) wrong++;
    ASSERT_EQ(Shape(result.lines[i]), Shape(want));
    if (!result.after_damage[i]) {
      ASSERT_EQ(result.lines[i], want) << i;
    }
  }
  EXPECT_GT(wrong, 0u);
  EXPECT_LT(wrong, 2u * 64 * 1024 / 16);
  EXPECT_EQ(result.calls, 20'000u);
}

TEST_F(Damage, GarbageAppended) {
  std::mt19937 random(7);
  for (size_t size = 1; size < 300; size++) {
    Bytes garbage(size);
    for (uint8_t& b : garbage) b = static_cast<uint8_t>(random());
    if (garbage[0] == 0 || garbage[0] == pb::kPacketTag) garbage[0] = 'x';
    const ReadResult result = ReadAll(bytes_ + garbage);
    ASSERT_EQ(result.lines, whole_.lines) << size;
    ASSERT_EQ(result.end, EndState::kGarbage);
    ASSERT_EQ(result.skipped.size(), 1u);
    ASSERT_EQ(result.skipped[0].offset, bytes_.size());
    ASSERT_EQ(result.skipped[0].size, size);
    ASSERT_EQ(result.good_end, bytes_.size());
  }
}

TEST_F(Damage, ZerosAppendedAreNotGarbage) {
  const ReadResult closed = ReadAll(bytes_ + Bytes(100'000));
  EXPECT_EQ(closed.end, EndState::kClean);
  EXPECT_EQ(closed.lines, whole_.lines);
  const Bytes open(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(whole_.offsets.back()));
  EXPECT_EQ(ReadAll(open + Bytes(100'000)).end, EndState::kNotClosed);
  EXPECT_EQ(ReadAll(bytes_ + Bytes(100'000) + AsBytes("x")).end, EndState::kGarbage);
  EXPECT_EQ(ReadAll(open + Bytes(2 << 20) + AsBytes("x")).end, EndState::kGarbage);
}

// A writer that dies while it stores a packet leaves everything but the packet's first byte.
TEST_F(Damage, UnfinishedPacketIsNoGarbage) {
  const size_t last = whole_.offsets.back();
  Bytes bytes = bytes_;
  bytes[last] = 0;
  const ReadResult result = ReadAll(bytes + Bytes(5000));
  EXPECT_EQ(result.end, EndState::kNotClosed);
  EXPECT_EQ(result.lines.size(), whole_.lines.size() - 1);
  EXPECT_TRUE(result.skipped.empty());
}

// A page that never reached the disk, with good packets behind it.
TEST_F(Damage, HoleOfZeros) {
  TestTrace t;
  for (uint32_t i = 0; i < 10'000; i++) t.Read4(0, 4 * i, i);
  Bytes bytes = t.Bytes();
  const ReadResult whole = ReadAll(bytes);
  std::fill_n(bytes.begin() + 65536, 4096, uint8_t{0});
  const ReadResult result = ReadAll(bytes);
  EXPECT_EQ(result.end, EndState::kNotClosed);
  EXPECT_EQ(result.skipped.size(), 1u + (result.skipped.size() > 1));
  // At least everything but the page and the two packets at its edges.
  EXPECT_GT(result.lines.size() + 2 * (4096 / 20 + 2), whole.lines.size());
  EXPECT_EQ(result.lines.back(), whole.lines.back());
}

TEST_F(Damage, AbsurdLengths) {
  const std::vector<Bytes> tails = {
      {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f},
      {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
      {0x0a, 0xff, 0xff, 0xff, 0x7f},
      {0x0a, 0x80, 0x80, 0x80, 0x80, 0x80},
      {0x0a, 0x00},
      {0x0a, 0x05, 0x7d, 0, 0, 0, 0},                // an empty packet
      Sealed({0x62, 0xff, 0xff, 0xff, 0xff, 0x0f}),  // sysmem of 4 GiB
      Sealed({0x3a, 0x04, 0x3a, 0xff, 0xff, 0x03}),  // request's payload longer than it
      Sealed({0x52, 0x02, 0x0a, 0x7f}),              // repeat's pattern too
      Sealed({0x3a, 0x03, 0x08, 0xff, 0x7f}),        // command 16383
      Sealed({0x10, 0x01}),                          // an access without its data
      Sealed({0x82, 0x01, 0x03, 0x0a, 0xff, 0x01}),  // header
      Sealed({0x0f}),                                // wire type 7
      Sealed({0x0b, 0x0c}),                          // groups
      Sealed({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
  };
  for (const Bytes& tail : tails) {
    ReadResult result = ReadAll(bytes_ + tail);
    EXPECT_EQ(result.lines, whole_.lines);
    EXPECT_EQ(result.end, EndState::kGarbage);
    result = ReadAll(bytes_ + tail + bytes_);
    EXPECT_GE(result.lines.size(), 2 * whole_.lines.size());
    EXPECT_EQ(result.skipped.size(), 1u);
  }
}

// A Repeat that claims 2^64 - 1 calls, twice.
TEST_F(Damage, CallNumbersDoNotWrap) {
  // pattern { request { command: 6 arg1: 4 } reply {} }, states, checksum with both read as zero.
  const Bytes call = {0x0a, 0x08, 0x0a, 0x04, 0x08, 0x06, 0x28, 0x04, 0x12, 0x00};
  Bytes state(kRepeatStateSize);
  PutRepeatState(state.data(), {.issued = UINT64_MAX, .answered = UINT64_MAX});
  const Bytes zero(kRepeatStateSize);
  const Bytes head = Bytes{0x52, static_cast<uint8_t>(call.size() + 2 * 53)} + call;
  const Bytes summed = head + Bytes{0x12, 51} + zero + Bytes{0x1a, 51} + zero;
  Bytes packet = Sealed(summed);
  const auto at = [&](size_t n) { return packet.begin() + static_cast<ptrdiff_t>(n); };
  const size_t begin = packet.size() - pb::kCrcField - summed.size();
  std::copy(state.begin(), state.end(), at(begin + head.size() + 2));
  std::copy(state.begin(), state.end(), at(begin + head.size() + 55));
  const ReadResult result = ReadAll(bytes_ + packet + packet);
  EXPECT_EQ(result.lines.size(), whole_.lines.size() + 2);
  EXPECT_EQ(result.calls, UINT64_MAX);
}

TEST_F(Damage, RandomBytesNeverCrash) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; round++) {
    Bytes bytes(random() % 400);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % 8 == 0 ? 0x0a : random());
    ReadAll(bytes);
    ReadAll(bytes_ + bytes);
    Bytes mixed = bytes_;
    for (int i = 0; i < 20; i++) mixed[random() % mixed.size()] = static_cast<uint8_t>(random());
    ReadAll(mixed);
  }
}

// Bytes made so that every one of them begins a packet of almost a megabyte whose structure is
// sound and whose checksum is wrong: trying them all would take hours.
TEST_F(Damage, CraftedCandidatesDoNotHangTheReader) {
  Bytes bytes = bytes_;
  // 0a, length of 1,000,000, field 12 of the rest: repeated; then the place where their ends lie
  // is full of checksum keys.
  const uint8_t unit[] = {0x0a, 0xc0, 0x84, 0x3d, 0x62, 0xb7, 0x84, 0x3d};
  for (size_t i = 0; i < 1'500'000; i++) bytes.push_back(unit[i % 8]);
  bytes.insert(bytes.end(), 1'500'000, pb::kCrcKey);
  const ReadResult result = ReadAll(bytes + bytes_);
  EXPECT_EQ(Shapes(result.lines).size(), 2 * whole_.lines.size());
}

TEST_F(Damage, ManySkippedRangesAreMerged) {
  Bytes bytes = bytes_;
  const Bytes good = Sealed({0x08, 0x01, 0x9a, 0x01, 0x02, 0x08, 0x01});  // an event
  for (int i = 0; i < 5000; i++) bytes = bytes + AsBytes("?") + good;
  const ReadResult result = ReadAll(bytes);
  EXPECT_EQ(result.lines.size(), whole_.lines.size() + 5000);
  EXPECT_EQ(result.skipped.size(), 1000u);
  EXPECT_EQ(result.skipped.back().offset + result.skipped.back().size, bytes.size() - good.size());
}

TEST(NotATrace, SaysWhatItLooksLike) {
  EXPECT_THAT(ReadAll({}).error, HasSubstr("empty"));
  EXPECT_THAT(ReadAll({0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3}).error, HasSubstr("zstd"));
  EXPECT_THAT(ReadAll({0x1f, 0x8b, 8, 0}).error, HasSubstr("gzip"));
  EXPECT_THAT(ReadAll(AsBytes("{\"traceEvents\": []}")).error, HasSubstr("JSON"));
  EXPECT_THAT(ReadAll(AsBytes("#!/bin/sh\necho hello, this is a script\n")).error,
              HasSubstr("text"));
  EXPECT_THAT(ReadAll(Bytes(100'000)).error, HasSubstr("zero bytes"));
  EXPECT_THAT(TraceReader::Open("/nonexistent/x.pb").error().message, HasSubstr("No such file"));
  EXPECT_EQ(TraceReader::Open("/nonexistent/x.pb").error().code, Error::Code::kNotFound);
  EXPECT_THAT(TraceReader::Open("/tmp").error().message, HasSubstr("directory"));
  EXPECT_THAT(TraceReader::Open("/dev/null").error().message, HasSubstr("not a regular file"));
}

TEST(NotATrace, NewerFeaturesAreRefused) {
  // Packet { header { magic features: 2 } }
  const Bytes message =
      Bytes{0x82, 0x01, 21, 0x0a, 17} + AsBytes("TinyGPU RPC trace") + Bytes{0x18, 0x02};
  EXPECT_THAT(ReadAll(Sealed(message)).error, HasSubstr("newer version"));
}

TEST(NotATrace, DamagedHeaderIsForgivenWhenPacketsFollow) {
  Bytes bytes = EveryKind();
  const ReadResult whole = ReadAll(bytes);
  for (size_t i = 0; i < whole.offsets[1]; i++) bytes[i] = 0xee;
  auto reader = TraceReader::FromBytes(bytes);
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->header(), nullptr);
  const ReadResult result = ReadAll(**reader);
  EXPECT_EQ(result.lines, std::vector<std::string>(whole.lines.begin() + 1, whole.lines.end()));
}

// A kill between the stores of an answer in place (body, latency, checksum): the request, which was
// acknowledged before, must be there all the same.
TEST_F(Damage, KilledBetweenTheStoresOfAnAnswer) {
  for (const uint64_t size : {4, 8}) {
    TestTrace t;
    ASSERT_TRUE(t.writer);
    const uint64_t call = t.Request(MmioRead(2, 0x800, size));
    const std::vector<uint8_t> asked = t.Bytes();
    t.now += 45'600;
    std::vector<uint8_t> body(size, 0xa5);
    t.Reply(call, {0, size, 0}, body);
    const std::vector<uint8_t> answered = t.Bytes();
    ASSERT_EQ(asked.size(), answered.size());
    std::vector<size_t> changed;
    for (size_t i = 0; i < asked.size(); i++)
      if (asked[i] != answered[i]) changed.push_back(i);
    // The body, two bytes of latency (the first may stay as it was), four of checksum.
    ASSERT_GE(changed.size(), size + 1 + 3);
    const auto slots = static_cast<size_t>(std::count_if(
        changed.begin(), changed.end(), [&](size_t i) { return i < changed.front() + size + 3; }));
    std::vector<uint8_t> torn = asked;
    for (size_t stores = 0; stores < slots; stores++) {
      torn[changed[stores]] = answered[changed[stores]];
      const ReadResult result = ReadAll(torn);
      EXPECT_TRUE(result.skipped.empty()) << stores;
      EXPECT_EQ(result.calls, 1u) << stores;
      EXPECT_EQ(result.end, EndState::kNotClosed) << stores;
      EXPECT_THAT(result.lines.back(), ::testing::HasSubstr("MMIO_READ")) << stores;
    }
    EXPECT_THAT(ReadAll(answered).lines.back(), ::testing::HasSubstr("-> 0"));
  }
}

}  // namespace
}  // namespace tg::trace
