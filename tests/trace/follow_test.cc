// Reading a trace while it grows.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "tests/trace/temp_dir.h"
#include "tests/trace/testing.h"
#include "tests/trace/victim.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;

std::unique_ptr<TraceWriter> NewFile(const std::string& path) {
  auto sink = OpenFileSink(path, false);
  WriterOptions options;
  options.segment_size = 1 << 20;
  options.patience_ms = 60'000;  // no losses, however slow the machine
  auto writer = TraceWriter::Create(std::move(*sink), options, SmallHeader());
  return std::move(*writer);
}

void Do(TraceWriter& writer, const VictimCall& c, uint64_t& now) {
  RequestRecord request;
  request.header = c.header();
  request.payload.size = c.payload().size();
  request.payload.data = c.payload();
  ReplyRecord reply;
  reply.call = writer.Request(request, now += 300);
  if (c.posted()) return;
  reply.reply = c.reply();
  reply.body.size = c.body().size();
  reply.body.data = c.body();
  writer.Reply(reply, now += 300);
}

std::vector<std::string> Drain(TraceReader& reader) {
  std::vector<std::string> lines;
  Record record;
  while (reader.Next(record)) lines.push_back(Line(record));
  return lines;
}

TEST(Follow, AnOpenRequestWaitsForItsAnswer) {
  const TempDir dir;
  const auto writer = NewFile(dir / "t.pb");
  auto reader = TraceReader::Open(dir / "t.pb");
  ASSERT_TRUE(reader);
  (*reader)->set_follow(true);
  EXPECT_EQ(Drain(**reader).size(), 2u);  // header, marker
  EXPECT_EQ((*reader)->end_state(), EndState::kNotClosed);

  RequestRecord request;
  request.header = MmioRead(0, 16, 4);
  ReplyRecord reply;
  reply.call = writer->Request(request, 1000);
  EXPECT_EQ(Drain(**reader).size(), 0u);  // it may still be answered in place
  reply.reply = {0, 4, 0};
  const auto value = Le4(7);
  reply.body.size = 4;
  reply.body.data = value;
  writer->Reply(reply, 3000);
  EXPECT_EQ(Drain(**reader), (std::vector<std::string>{"#1 @1000 MMIO_READ 0 0 16 4 0 [0:]",
                                                       "#1 @3000 -> 0 4 0 [4:07000000] in 2000"}));

  // Never answered: delivered when something stands behind it.
  writer->Request(request, 4000);
  EXPECT_EQ(Drain(**reader).size(), 0u);
  request.header = MmioRead(0, 20, 4);
  writer->Request(request, 5000);
  EXPECT_EQ(Drain(**reader), (std::vector<std::string>{"#2 @4000 MMIO_READ 0 0 16 4 0 [0:]"}));

  ASSERT_TRUE(writer->Close({}, 6000));
  EXPECT_EQ(Drain(**reader).size(), 2u);
  EXPECT_EQ((*reader)->end_state(), EndState::kClean);
  EXPECT_EQ(Drain(**reader).size(), 0u);
}

TEST(Follow, ARunWaitsForItsEnd) {
  const TempDir dir;
  const auto writer = NewFile(dir / "t.pb");
  auto reader = TraceReader::Open(dir / "t.pb");
  ASSERT_TRUE(reader);
  (*reader)->set_follow(true);
  Drain(**reader);
  RequestRecord poll;
  poll.header = MmioRead(0, 16, 4);
  ReplyRecord reply;
  reply.reply = {0, 4, 0};
  const auto value = Le4(7);
  reply.body.size = 4;
  reply.body.data = value;
  size_t lines = 0;
  for (int i = 0; i < 1000; i++) {
    reply.call = writer->Request(poll, static_cast<uint64_t>(i) * 1000);
    writer->Reply(reply, static_cast<uint64_t>(i) * 1000 + 500);
    lines += Drain(**reader).size();
  }
  EXPECT_EQ(lines, 4u);
  poll.header.arg0 = 20;
  writer->Request(poll, 1'000'000);
  EXPECT_EQ(Drain(**reader),
            (std::vector<std::string>{"#3 @2000 repeat 998/998 until 999000 latency 500..500 "
                                      "{MMIO_READ 0 0 16 4 0 [0:] -> 0 4 0 [4:07000000]}"}));
}

// A reader at full speed behind a writer at full speed sees what a later reader sees, answers and
// counts included.
TEST(Follow, SeesWhatALaterReaderSees) {
  for (const uint64_t seed : {1, 2, 3}) {
    const TempDir dir;
    const std::string path = dir / "t.pb";
    const auto writer = NewFile(path);
    std::atomic<bool> written = false;
    std::thread thread([&] {
      uint64_t now = 0;
      for (uint64_t call = 1; call <= 60'000; call++) Do(*writer, VictimCall(seed, call), now);
      if (!writer->Close({}, now)) std::abort();
      written = true;
    });
    auto reader = TraceReader::Open(path);
    ASSERT_TRUE(reader);
    (*reader)->set_follow(true);
    std::vector<std::string> lines;
    for (bool last = false; !last;) {
      last = written;
      const std::vector<std::string> more = Drain(**reader);
      lines.insert(lines.end(), more.begin(), more.end());
      if (more.empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    thread.join();
    EXPECT_EQ((*reader)->end_state(), EndState::kClean);
    EXPECT_TRUE((*reader)->skipped().empty());
    reader = TraceReader::Open(path);
    ASSERT_TRUE(reader);
    const ReadResult later = ReadAll(**reader);
    EXPECT_EQ(later.calls, 60'000u);
    ASSERT_EQ(lines.size(), later.lines.size());
    for (size_t i = 0; i < lines.size(); i++) ASSERT_EQ(lines[i], later.lines[i]) << i;
  }
}

// Two threads write: packets come whole, in some order, and none is lost.
TEST(Follow, TwoWritersOneReader) {
  const TempDir dir;
  const std::string path = dir / "t.pb";
  const auto writer = NewFile(path);
  std::thread capture([&] {
    for (int i = 0; i < 3000; i++) {
      proto::Packet packet;
      packet.mutable_sysmem()->set_index(static_cast<uint32_t>(i));
      packet.mutable_sysmem()->set_data(std::string(static_cast<size_t>(i % 3000), 'x'));
      writer->Append(packet, 1000);
      if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  std::thread syncing([&] {
    for (int i = 0; i < 20; i++) EXPECT_TRUE(writer->Sync());
  });
  uint64_t now = 0;
  for (uint64_t call = 1; call <= 40'000; call++) Do(*writer, VictimCall(9, call), now);
  capture.join();
  syncing.join();
  ASSERT_TRUE(writer->Close({}, now));
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  Record record;
  uint64_t requests = 0, sysmem = 0;
  const auto check = [&](const RequestView& view, uint64_t call) {
    ASSERT_EQ(call, ++requests);
    ASSERT_EQ(view.header, VictimCall(9, call).header());
  };
  while ((*reader)->Next(record)) {
    if (record.kind == Record::Kind::kRequest) check(record.request, record.call);
    for (uint64_t i = 0; record.kind == Record::Kind::kRepeat && i < record.issued; i++)
      check(record.pattern[i % record.pattern.size()].request, record.call + i);
    if (record.kind == Record::Kind::kPacket && record.packet->has_sysmem()) {
      ASSERT_EQ(record.packet->sysmem().index(), sysmem);
      sysmem++;
    }
  }
  EXPECT_EQ(requests, 40'000u);
  EXPECT_EQ(sysmem, 3000u);
  EXPECT_EQ((*reader)->end_state(), EndState::kClean);
  EXPECT_TRUE((*reader)->skipped().empty());
  EXPECT_TRUE(writer->losses().empty());
}

}  // namespace
}  // namespace tg::trace
