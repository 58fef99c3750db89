// What was written is what is read: every kind of packet, every field, every size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "schemas/wire/bytes.h"
#include "tests/trace/testing.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Without the header and the first marker.
std::vector<std::string> Tail(const ReadResult& result) {
  EXPECT_GE(result.lines.size(), 2u);
  EXPECT_THAT(result.lines.at(0), HasSubstr("header { magic: \"TinyGPU RPC trace\""));
  EXPECT_THAT(result.lines.at(1), HasSubstr("marker {"));
  return {result.lines.begin() + 2, result.lines.end()};
}

TEST(RoundTrip, SmallReadIsAnsweredInPlace) {
  TestTrace t;
  ASSERT_TRUE(t.writer);
  t.now += 12'300;
  const uint64_t call = t.Request(MmioRead(5, 0x5a0, 4));
  EXPECT_EQ(call, 1u);
  const uint64_t size = t.writer->bytes_written();
  t.now += 45'600;
  t.Reply(call, {0, 4, 0}, Le4(0xdeadbeef));
  EXPECT_EQ(t.writer->bytes_written(), size);
  t.Close("done");
  const ReadResult result = ReadAll(t.Bytes());
  EXPECT_THAT(Tail(result), ElementsAre("#1 @12300 MMIO_READ 0 5 1440 4 0 [0:]",
                                        "#1 @57900 -> 0 4 0 [4:efbeadde] in 45600",
                                        "#1 @57900 end { reason: \"done\" calls: 1 }"));
  EXPECT_EQ(result.end, EndState::kClean);
  EXPECT_EQ(result.calls, 1u);
  EXPECT_EQ(result.packets, 4u);
  EXPECT_TRUE(result.skipped.empty());
}

// Each of these answers differs from the usual one in one point: it gets a Reply packet.
TEST(RoundTrip, UnusualAnswersAreWrittenOut) {
  struct Case {
    const char* name;
    void (*change)(ReplyRecord&);
    const char* line;
  };
  static const std::array<uint8_t, 4> four = {1, 2, 3, 4};
  const Case cases[] = {
      {"status", [](ReplyRecord& r) { r.reply.status = 1; }, "-> 1 4 0 [4:01020304] in 1000"},
      {"resp0", [](ReplyRecord& r) { r.reply.resp0 = 8; }, "-> 0 8 0 [4:01020304] in 1000"},
      {"resp1", [](ReplyRecord& r) { r.reply.resp1 = 7; }, "-> 0 4 7 [4:01020304] in 1000"},
      {"short", [](ReplyRecord& r) { r.body.data = r.body.data.first(3); },
       "-> 0 4 0 [4:010203] in 1000"},
      {"absent", [](ReplyRecord& r) { r.body = {}; }, "-> 0 4 0 [0:] in 1000"},
      {"descriptor", [](ReplyRecord& r) { r.descriptors = 1; },
       "-> 0 4 0 [4:01020304] fds=1 in 1000"},
      {"truncated control", [](ReplyRecord& r) { r.control_truncated = true; },
       "-> 0 4 0 [4:01020304] ctrunc in 1000"},
      {"injected", [](ReplyRecord& r) { r.injected = "rule 1"; },
       "-> 0 4 0 [4:01020304] injected=rule 1 in 1000"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TestTrace t;
    ReplyRecord reply;
    reply.call = t.Request(MmioRead(0, 16, 4));
    reply.reply = {0, 4, 0};
    reply.body.size = 4;
    reply.body.data = four;
    c.change(reply);
    t.now += 1000;
    t.writer->Reply(reply, t.now);
    const ReadResult result = ReadAll(t.Bytes());
    EXPECT_THAT(Tail(result),
                ElementsAre("#1 @0 MMIO_READ 0 0 16 4 0 [0:]", std::string("#1 @1000 ") + c.line));
    EXPECT_EQ(result.end, EndState::kNotClosed);
  }
}

TEST(RoundTrip, LatencyAtTheSlotsLimit) {
  for (const uint64_t ticks : {1ull, 127ull, 128ull, 16383ull, 16384ull, 3'000'000'000ull}) {
    TestTrace t;
    const uint64_t call = t.Request(MmioRead(0, 16, 4));
    const uint64_t size = t.writer->bytes_written();
    t.now += ticks * 100;
    t.Reply(call, {0, 4, 0}, Le4(1));
    EXPECT_EQ(t.writer->bytes_written() == size, ticks <= 16383) << ticks;
    const std::string end = std::to_string(ticks * 100);
    EXPECT_THAT(Tail(ReadAll(t.Bytes())),
                ElementsAre("#1 @0 MMIO_READ 0 0 16 4 0 [0:]",
                            "#1 @" + end + " -> 0 4 0 [4:01000000] in " + end));
  }
}

// A latency of zero ticks would read as "no answer".
TEST(RoundTrip, AnswerWithinOneTick) {
  TestTrace t;
  t.Reply(t.Request(MmioRead(0, 16, 4)), {0, 4, 0}, Le4(0));
  EXPECT_THAT(Tail(ReadAll(t.Bytes())), ElementsAre("#1 @0 MMIO_READ 0 0 16 4 0 [0:]",
                                                    "#1 @100 -> 0 4 0 [4:00000000] in 100"));
}

// Replies to pipelined requests find their calls.
TEST(RoundTrip, PipelinedRequests) {
  TestTrace t;
  const uint64_t a = t.Request(MmioRead(0, 4, 4));
  const uint64_t b = t.Request(MmioRead(0, 8, 4));
  t.Write4(0, 12, 3, 0);
  t.now += 500;
  t.Reply(a, {0, 4, 0}, Le4(1));
  t.now += 500;
  t.Reply(b, {0, 4, 0}, Le4(2));
  EXPECT_THAT(Tail(ReadAll(t.Bytes())),
              ElementsAre("#1 @0 MMIO_READ 0 0 4 4 0 [0:]", "#2 @0 MMIO_READ 0 0 8 4 0 [0:]",
                          "#3 @0 MMIO_WRITE 0 0 12 4 0 [4:03000000]",
                          "#1 @500 -> 0 4 0 [4:01000000] in 500",
                          "#2 @1000 -> 0 4 0 [4:02000000] in 1000"));
}

TEST(RoundTrip, EverySmallAccess) {
  TestTrace t;
  std::vector<std::string> want;
  uint64_t n = 0;
  std::array<uint8_t, 8> wide = {8, 7, 6, 5, 4, 3, 2, 1};
  for (const uint64_t size : {uint64_t{4}, uint64_t{8}}) {
    const std::span<const uint8_t> data = std::span(wide).first(size);
    const std::string hex = size == 4 ? "[4:08070605]" : "[8:0807060504030201]";
    for (uint32_t bar = 0; bar < 8; bar++) {  // 6 and 7 have no number of their own
      for (const auto& [read, write, handle] :
           {std::tuple{wire::Command::kMmioRead, wire::Command::kMmioWrite, bar},
            std::tuple{wire::Command::kSysmemRead, wire::Command::kSysmemWrite, bar * 1000}}) {
        wire::RequestHeader h = MmioRead(handle, 0x1234567, size);
        h.command = static_cast<uint8_t>(read);
        const std::string args =
            " 0 " + std::to_string(handle) + " 19088743 " + std::to_string(size) + " 0 ";
        t.Reply(t.Request(h), {0, size, 0}, data);
        n++;
        want.push_back("#" + std::to_string(n) + " @0 " +
                       std::string(wire::CommandName(h.command)) + args + "[0:]");
        want.push_back("#" + std::to_string(n) + " @" + (bar < 6 || handle >= 1000 ? "100" : "0") +
                       " -> 0 " + std::to_string(size) + " 0 " + hex + " in 100");
        h.command = static_cast<uint8_t>(write);
        t.Request(h, data);
        n++;
        want.push_back("#" + std::to_string(n) + " @0 " +
                       std::string(wire::CommandName(h.command)) + args + hex);
      }
    }
  }
  EXPECT_EQ(Tail(ReadAll(t.Bytes())), want);
}

TEST(RoundTrip, RequestWithEverything) {
  TestTrace t;
  const std::vector<uint8_t> data = {9, 8, 7};
  RequestRecord r;
  r.header = {.command = 200,
              .dev = 0xffffffff,
              .bar = 0xfffffffe,
              .arg0 = UINT64_MAX,
              .arg1 = UINT64_MAX - 1,
              .arg2 = 1};
  r.payload = {.size = 1000, .data = data, .xxh3 = 0, .all_zero = true, .streamed = true};
  r.truncated = true;
  r.received = 17;
  r.injected = "autopsy";
  r.refused = "read-only";
  t.writer->Request(r, t.now);
  EXPECT_THAT(Tail(ReadAll(t.Bytes())),
              ElementsAre("#1 @0 command 200 4294967295 4294967294 18446744073709551615 "
                          "18446744073709551614 1 [1000:090807 xxh3=0 all_zero streamed] "
                          "truncated 17 injected=autopsy refused=read-only"));
}

// protobuf refuses strings that are not UTF-8; a process or a file may well be called so.
TEST(RoundTrip, StringsThatAreNoUtf8) {
  proto::Header header = SmallHeader();
  header.set_host("h\xffst");
  TestTrace t({}, header);
  ASSERT_TRUE(t.writer);
  t.Note("caf\xc3\xa9 \xe9 \xed\xa0\x80 \xf0\x9f\x98\x80 \xc3");
  RequestRecord r;
  r.header = MmioRead(0, 0, 4);
  r.refused = "caf\xc3\xa9";
  t.writer->Request(r, t.now);
  t.Close("bye\xc0\x80");
  ::testing::internal::CaptureStderr();
  auto reader = TraceReader::FromBytes(t.Bytes());
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->header()->host(), "h?st");
  Record record;
  std::vector<std::string> texts;
  while ((*reader)->Next(record)) {
    if (record.kind == Record::Kind::kRequest) texts.emplace_back(record.request.refused);
    if (record.packet == nullptr) continue;
    if (record.packet->has_event()) texts.push_back(record.packet->event().text());
    if (record.packet->has_end()) texts.push_back(record.packet->end().reason());
  }
  EXPECT_THAT(texts, ElementsAre("caf\xc3\xa9 ? ??? \xf0\x9f\x98\x80 ?", "caf??", "bye??"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tg::trace
