#include "replay/script/script.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replay/script/format.h"
#include "replay/script/survey.h"
#include "tests/replay/session.h"

namespace tg::replay {
namespace {

namespace pb = tinygpu::trace;
using namespace testing;

// All steps as lines, in order.
std::vector<std::string> Lines(Script& script) {
  std::vector<std::string> lines;
  while (const Step* step = script.At(0)) {
    switch (step->kind) {
      case Step::Kind::kCall:
        lines.push_back(FormatCall(step->call, script.revision()));
        break;
      case Step::Kind::kRun: {
        std::string text = "run of " + std::to_string(step->run->issued) + " from #" +
                           std::to_string(step->run->first);
        for (const Call& call : step->run->pattern)
          text += ", " + FormatCallText(call, script.revision());
        lines.push_back(text);
        break;
      }
      case Step::Kind::kMemory:
        lines.push_back("memory " + std::to_string(step->memory.region) + "+" +
                        std::to_string(step->memory.offset) + " " +
                        std::to_string(step->memory.size()));
        break;
      case Step::Kind::kRegion:
        lines.push_back("region " + std::to_string(step->region.index) + " of #" +
                        std::to_string(step->number));
        break;
      case Step::Kind::kConnect:
        lines.push_back("connect " + std::to_string(step->connection) + " " + step->text);
        break;
      case Step::Kind::kDisconnect:
        lines.push_back("disconnect " + step->text);
        break;
      case Step::Kind::kGap:
        lines.push_back("gap " + step->text);
        break;
      case Step::Kind::kRaw:
        lines.push_back("raw " + step->text);
        break;
    }
    script.Pop();
  }
  return lines;
}

TEST(Script, CallsWithAnswersMemoryAndConnections) {
  Session session;
  session.Connect();
  session.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000'0000, 0x10'0000});
  session.Read4(5, 0x378c, 0x2000);
  session.Write4(5, 0x10, 7);
  session.MapFd(0, 0x4000, 0x1'0000'0000, Le(0x1'0000'0000, 8));
  session.Call(Header(wire::Command::kMmioRead, 9, 0, 4), {1, 3, 0}, {'b', 'a', 'd'});
  session.Disconnect();
  EXPECT_EQ(Lines(*session.Open()),
            (std::vector<std::string>{
                "connect 1 unix",
                "#1 MAP_BAR bar5 -> 0x100000 bytes",
                "#2 MMIO_READ bar5+0x378c 4 bytes -> 0x00002000",
                "#3 MMIO_WRITE bar5+0x10 <- 0x00000007",
                "#4 MAP_SYSMEM_FD 0x4000 bytes -> region 0, 0x4000 bytes, with descriptor",
                "region 0 of #4",
                "memory 0+0 8",
                "#5 MMIO_READ bar9+0x0 4 bytes -> error \"bad\"",
                "disconnect client",
            }));
}

TEST(Script, ReplyThatComesBehindOtherRequests) {
  Session session;
  trace::RequestRecord request;
  request.header = Header(wire::Command::kMmioRead, 0, 0x100, 16);
  const uint64_t read = session.writer().Request(request, session.now());
  session.Write4(0, 4, 1);
  session.Write4(0, 8, 2);
  const std::vector<uint8_t> body(16, 0xab);
  trace::ReplyRecord reply;
  reply.call = read;
  reply.reply = {0, 16, 0};
  reply.body.size = 16;
  reply.body.data = body;
  session.writer().Reply(reply, session.now());
  const auto script = session.Open();
  const Step* step = script->At(0);
  ASSERT_NE(step, nullptr);
  EXPECT_TRUE(step->call.answered);
  EXPECT_EQ(step->call.body.data, body);
  EXPECT_EQ(step->waiting, 0);
  EXPECT_EQ(script->At(2)->number, 3u);
  EXPECT_EQ(script->At(3), nullptr);
}

TEST(Script, BodyInChunks) {
  Session session;
  trace::RequestRecord request;
  request.header = Header(wire::Command::kMmioRead, 0, 0, 10);
  const uint64_t call = session.writer().Request(request, session.now());
  trace::ReplyRecord reply;
  reply.call = call;
  reply.reply = {0, 10, 0};
  reply.body.size = 10;
  const std::vector<uint8_t> head{0, 1, 2};
  reply.body.data = head;
  reply.body.streamed = true;
  session.writer().Reply(reply, session.now());
  session.Write4(0, 0, 0);
  for (const bool last : {false, true}) {
    pb::Packet packet;
    pb::BodyChunk& chunk = *packet.mutable_chunk();
    chunk.set_calls_back(1);
    chunk.set_of_reply(true);
    chunk.set_offset(last ? 7 : 3);
    chunk.set_data(last ? std::string("\7\10\11", 3) : std::string("\3\4\5\6", 4));
    chunk.set_last(last);
    if (last) chunk.set_received(10);
    session.Append(packet);
  }
  const auto script = session.Open();
  const Bytes& body = script->At(0)->call.body;
  EXPECT_TRUE(body.known());
  EXPECT_EQ(body.data, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Script, RepeatStaysOneStep) {
  Session session;
  for (int i = 0; i < 10'000; i++) session.Read4(5, 0x100, 3);
  session.Read4(5, 0x100, 4);
  const auto script = session.Open();
  uint64_t calls = 0;
  size_t steps = 0;
  for (; const Step* step = script->At(0); script->Pop(), steps++) {
    calls += step->kind == Step::Kind::kRun ? step->run->issued : 1;
    if (step->kind != Step::Kind::kRun) continue;
    EXPECT_EQ(step->run->answered, step->run->issued);
    EXPECT_EQ(step->number, step->run->first);
  }
  EXPECT_EQ(calls, 10'001u);
  EXPECT_LT(steps, 30u);
}

TEST(Script, WhatNeverGetsAnAnswerDoesNotHoldUpTheRest) {
  Session session;
  session.Connect();
  session.Unanswered(Header(wire::Command::kReset));
  session.Disconnect("server");
  session.Connect(2);
  for (int i = 0; i < 100; i++) session.Write4(0, 8 * i, i);
  const auto script = session.Open();
  EXPECT_EQ(script->At(0)->kind, Step::Kind::kConnect);
  EXPECT_FALSE(script->At(1)->call.answered);
  EXPECT_EQ(script->At(2)->text, "server");
  size_t steps = 0;
  while (script->At(0)) {
    script->Pop();
    steps++;
  }
  EXPECT_EQ(steps, 104u);
}

TEST(Script, TellsRewrites) {
  Session session(false);
  session.Write4(5, 0x10, 7);  // first
  session.Read4(5, 0x14, 1);
  session.Write4(5, 0x10, 7);  // again
  session.Write4(5, 0x10, 8);  // another value
  session.Write4(5, 0x18, 8);  // another place
  session.Write4(5, 0x10, 8);  // the place before the last
  const auto script = session.Open();
  const std::vector<bool> expected{false, false, true, false, false, false};
  for (size_t i = 0; i < expected.size(); i++)
    EXPECT_EQ(script->At(i)->call.rewrite, expected[i]) << i;
}

TEST(Script, LossesAndDamageAreSteps) {
  Session session(false);
  session.Read4(5, 0, 1);
  pb::Packet loss;
  loss.mutable_loss()->set_cause(pb::Loss::DISK_FULL);
  loss.mutable_loss()->set_calls(12);
  session.Append(loss);
  pb::Packet lag;
  lag.mutable_loss()->set_cause(pb::Loss::LAG);
  lag.mutable_loss()->set_packets(3);
  session.Append(lag);
  const auto script = session.Open();
  EXPECT_EQ(script->At(1)->kind, Step::Kind::kGap);
  EXPECT_TRUE(script->At(1)->breaks);
  EXPECT_EQ(script->At(1)->text, "12 calls were not recorded (disk full)");
  EXPECT_FALSE(script->At(2)->breaks);
  EXPECT_EQ(script->At(2)->text,
            "3 copies of shared memory were not recorded (shared memory not copied in time)");
}

TEST(Survey, SaysWhatPlayingLacks) {
  Session session(false);
  session.Connect(7, "tcp");
  session.Read4(5, 0x100, 0);
  session.Read4(5, 0x100, 1);
  session.Read4(5, 0x200, 1);
  trace::RequestRecord request;
  request.header = MmioWrite(0, 0x2000, 5000);
  const std::vector<uint8_t> head(256, 1);
  request.payload.size = 5000;
  request.payload.data = head;
  request.payload.xxh3 = 99;
  session.writer().Request(request, session.now());
  request = trace::RequestRecord();
  request.header = MmioRead(0, 0, 0x2800);
  trace::ReplyRecord reply;
  reply.call = session.writer().Request(request, session.now());
  reply.reply = {0, 0x2800, 0};
  reply.body.size = 0x2800;
  reply.body.xxh3 = 5;
  session.writer().Reply(reply, session.now());
  session.Call(Header(wire::Command::kMapSysmemFd, 0, 0x4000), {0, 0x4000, 0}, {}, 1);
  session.Unanswered(Header(wire::Command::kReset));
  session.Disconnect("server", 7);

  const Survey survey = Examined(session.Bytes());
  EXPECT_EQ(survey.calls, 7u);
  EXPECT_EQ(survey.unanswered, 1u);
  ASSERT_EQ(survey.connections.size(), 1u);
  EXPECT_EQ(survey.connections[0].id, 7u);
  EXPECT_EQ(survey.connections[0].transport, "tcp");
  EXPECT_EQ(survey.connections[0].closed_first, "server");
  EXPECT_EQ(survey.connections[0].calls, 7u);
  EXPECT_EQ(survey.bodies.count, 1u);
  EXPECT_EQ(survey.bodies.first, 5u);
  EXPECT_EQ(survey.bodies.example,
            "#5 MMIO_READ bar0+0x0 10240 bytes -> 10240 bytes (contents not recorded)");
  EXPECT_EQ(survey.payloads.count, 1u);
  EXPECT_EQ(survey.payloads.first, 4u);
  EXPECT_EQ(survey.unmapped.count, 1u);
  EXPECT_EQ(survey.unmapped.first, 6u);
  EXPECT_TRUE(survey.whole_file);
  EXPECT_TRUE(survey.Polled(MmioRead(5, 0x100, 4)));
  EXPECT_FALSE(survey.Polled(MmioRead(5, 0x200, 4)));
  EXPECT_FALSE(survey.breaks);
}

TEST(Survey, TornFile) {
  Session session(false);
  for (int i = 0; i < 20; i++) session.Read4(5, 8 * i, i);
  std::vector<uint8_t> bytes = session.Bytes();
  const Survey whole = Examined(bytes);
  EXPECT_TRUE(whole.whole_file);
  EXPECT_EQ(whole.calls, 20u);
  bytes.resize(bytes.size() - 40);
  const Survey torn = Examined(bytes);
  EXPECT_FALSE(torn.whole_file);
  EXPECT_LE(torn.calls, 20u);
  EXPECT_GE(torn.calls, 17u);
  // Bytes that are no packet in the middle: what is behind them is found, and the gap is named.
  bytes = session.Bytes();
  for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 4; i++) bytes[i] ^= 0x55;
  const Survey damaged = Examined(bytes);
  EXPECT_TRUE(damaged.breaks);
  ASSERT_GE(damaged.gap_count, 1u);
  EXPECT_NE(damaged.gaps[0].find("unreadable"), std::string::npos);
}

// Nothing but the trace's own size bounds what is read from it.
TEST(Script, EveryTruncationIsHandled) {
  Session session;
  session.Connect();
  session.MapFd(0, 0x4000, 0x1000'0000, Le(1, 8));
  for (int i = 0; i < 40; i++) session.Read4(5, 0x10, 1);
  session.Doorbell(0x44);
  session.Memory(0, 0x100, Le(5, 4));
  session.Disconnect();
  const std::vector<uint8_t> bytes = session.Bytes();
  uint64_t last = 0;
  for (size_t size = 0; size <= bytes.size(); size++) {
    auto reader = trace::TraceReader::FromBytes({bytes.begin(), bytes.begin() + size});
    if (!reader) continue;
    Script script(std::move(*reader));
    const Survey survey = Examine(script);
    EXPECT_GE(survey.calls, last) << size;
    last = survey.calls;
  }
  EXPECT_EQ(last, 42u);
}

}  // namespace
}  // namespace tg::replay
