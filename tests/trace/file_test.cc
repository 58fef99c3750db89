// Traces in real files.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/trace/counting_new.h"
#include "tests/trace/temp_dir.h"
#include "tests/trace/testing.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;
using ::testing::HasSubstr;

std::unique_ptr<TraceWriter> NewFile(const std::string& path, WriterOptions options = {},
                                     const proto::Header& header = SmallHeader()) {
  auto sink = OpenFileSink(path, false);
  EXPECT_TRUE(sink) << sink.error().message;
  options.patience_ms = 60'000;  // no losses, however slow the machine
  auto writer = TraceWriter::Create(std::move(*sink), options, header);
  EXPECT_TRUE(writer) << writer.error().message;
  return std::move(*writer);
}

std::vector<uint8_t> Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Access(TraceWriter& writer, uint64_t& now, uint64_t offset, uint32_t value) {
  RequestRecord request;
  request.header = MmioRead(0, offset, 4);
  const std::array<uint8_t, 4> bytes = Le4(value);
  ReplyRecord reply;
  reply.call = writer.Request(request, now += 700);
  reply.reply = {0, 4, 0};
  reply.body.size = 4;
  reply.body.data = bytes;
  writer.Reply(reply, now += 700);
}

TEST(File, IsPrivateAndNeverReplacesUnasked) {
  const TempDir dir;
  const std::string path = dir / "t.pb";
  { const auto writer = NewFile(path); }
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const auto again = OpenFileSink(path, false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Error::Code::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("exists already"));
  EXPECT_THAT(OpenFileSink("/dev/null", true).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(OpenFileSink(dir / "no/such/t.pb", false).error().message, HasSubstr("No such file"));
}

// Another proxy may still be writing the old file: it keeps its own.
TEST(File, OverwritingLeavesTheOldWriterItsFile) {
  const TempDir dir;
  const std::string path = dir / "t.pb";
  auto old_writer = NewFile(path);
  uint64_t now = 0;
  Access(*old_writer, now, 4, 1);
  {
    auto sink = OpenFileSink(path, true);
    ASSERT_TRUE(sink) << sink.error().message;
    auto writer = TraceWriter::Create(std::move(*sink), {}, SmallHeader());
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->Close({}, 0));
  }
  for (uint32_t i = 0; i < 1000; i++) Access(*old_writer, now, i * 4, i);  // no SIGBUS
  ASSERT_TRUE(old_writer->Close({}, now));
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  EXPECT_EQ(ReadAll(**reader).calls, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 1);
}

TEST(File, ClosedIsCutToItsContent) {
  const TempDir dir;
  auto writer = NewFile(dir / "t.pb");
  uint64_t now = 0;
  Access(*writer, now, 4, 1);
  EXPECT_GE(std::filesystem::file_size(dir / "t.pb"), 8u << 20);
  ASSERT_TRUE(writer->Close({}, now));
  EXPECT_EQ(std::filesystem::file_size(dir / "t.pb"), writer->bytes_written());
  // Nothing is taken after that, and calls still count.
  Access(*writer, now, 8, 2);
  EXPECT_EQ(writer->calls(), 2u);
  EXPECT_TRUE(writer->Sync());
  EXPECT_TRUE(writer->Close({}, now));
  EXPECT_EQ(std::filesystem::file_size(dir / "t.pb"), writer->bytes_written());
}

// A disk that preallocates really has the blocks: that is what keeps a full one from SIGBUS.
TEST(File, SegmentsHaveBlocksBehindThem) {
  const TempDir dir;
  const auto writer = NewFile(dir / "t.pb");
  struct stat st;
  ASSERT_EQ(stat((dir / "t.pb").c_str(), &st), 0);
  EXPECT_GE(st.st_blocks * 512, 8 << 20);
}

// What any protobuf tool sees is what the reader delivers.
TEST(File, ProtocDecodesAClosedFile) {
  const TempDir dir;
  const std::string path = dir / "t.pb";
  const std::vector<uint8_t> bytes = EveryKind();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const std::string command = std::string(PROTOC) + " --decode=tinygpu.trace.Trace -I '" +
                              SOURCE_DIR "' '" SOURCE_DIR "/schemas/trace/trace.proto' < '" + path +
                              "'";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  ASSERT_EQ(pclose(pipe), 0) << command;

  proto::Trace decoded, parsed;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &decoded));
  ASSERT_TRUE(parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(decoded, parsed));

  // The same calls in the same order as the reader's.
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  Record record;
  int i = 0;
  uint64_t last = UINT64_MAX, ticks = 0;
  while ((*reader)->Next(record)) {
    const bool same = record.offset == last;  // an answer in its request's packet
    last = record.offset;
    ASSERT_LT(i, decoded.packet_size() + (same ? 1 : 0));
    const proto::Packet& p = decoded.packet(same ? i - 1 : i++);
    if (!same) ticks += p.dt();
    if (p.has_marker()) ticks = p.marker().time() / 100;
    switch (record.kind) {
      case Record::Kind::kRequest:
        EXPECT_TRUE(p.op() != proto::OP_NONE || p.has_request());
        EXPECT_EQ(record.time_ns, ticks * 100);
        EXPECT_EQ(record.request.header.arg0, p.has_request() ? p.request().arg0() : p.arg0());
        break;
      case Record::Kind::kReply:
        if (p.has_reply()) {
          EXPECT_EQ(record.reply.reply.resp0, p.reply().resp0());
          EXPECT_EQ(record.reply.latency_ns, p.reply().latency() * 100);
        } else {
          EXPECT_EQ(record.reply.latency_ns, p.latency() * 100);
          if (p.has_data32()) {
            const std::array<uint8_t, 4> data = Le4(p.data32());
            EXPECT_THAT(record.reply.body.data, ::testing::ElementsAreArray(data));
          }
        }
        break;
      case Record::Kind::kRepeat:
        EXPECT_EQ(record.pattern.size(), static_cast<size_t>(p.repeat().pattern_size()));
        EXPECT_EQ(record.issued,
                  std::max(p.repeat().state_a().issued(), p.repeat().state_b().issued()));
        break;
      case Record::Kind::kPacket:
        EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(p, *record.packet));
        break;
    }
  }
  EXPECT_EQ(i, decoded.packet_size());
}

TEST(File, HeaderCarriesItsOwnSchema) {
  const TempDir dir;
  auto writer = NewFile(dir / "t.pb", {}, proto::Header());
  ASSERT_TRUE(writer->Close({}, 0));
  auto reader = TraceReader::Open(dir / "t.pb");
  ASSERT_TRUE(reader);
  const proto::Header& header = *(*reader)->header();
  EXPECT_EQ(header.version(), 1u);
  EXPECT_EQ(header.tick_ns(), 100u);
  EXPECT_EQ(header.marker().size(), 16u);
  // A program that has never seen trace.proto can read the file with it.
  google::protobuf::DescriptorPool pool;
  for (const auto& file : header.schema().file()) ASSERT_NE(pool.BuildFile(file), nullptr);
  const auto* trace = pool.FindMessageTypeByName("tinygpu.trace.Trace");
  ASSERT_NE(trace, nullptr);
  EXPECT_NE(trace->FindFieldByName("packet"), nullptr);
}

// One 4-byte access, offsets up to 64 KiB, less than 1.6 ms after the one before.
TEST(File, SmallAccessesCostAtMost24Bytes) {
  const TempDir dir;
  WriterOptions options;
  options.fold = false;
  auto writer = NewFile(dir / "t.pb", options);
  std::mt19937 random(3);
  const uint64_t before = writer->bytes_written();
  uint64_t now = 0;
  constexpr int kCalls = 200'000;
  for (int i = 0; i < kCalls; i++) {
    RequestRecord request;
    const auto value = Le4(random());
    const bool read = random() % 2 == 0;
    request.header = read ? MmioRead(5, random() % 65536, 4) : MmioWrite(5, random() % 65536, 4);
    if (!read) {
      request.payload.size = 4;
      request.payload.data = value;
    }
    now += random() % 800'000;
    ReplyRecord reply;
    reply.call = writer->Request(request, now);
    now += random() % 800'000;
    reply.reply = {0, 4, 0};
    reply.body.size = 4;
    reply.body.data = value;
    if (read) writer->Reply(reply, now);
  }
  EXPECT_LE(static_cast<double>(writer->bytes_written() - before), 24.0 * kCalls);
}

// Steady state: no heap, on no thread, however many segments go by.
TEST(File, WritingDoesNotAllocate) {
  const TempDir dir;
  WriterOptions options;
  options.segment_size = 1 << 20;
  auto writer = NewFile(dir / "t.pb", options);
  std::vector<uint8_t> payload(4096, 7);
  uint64_t now = 0;
  const auto run = [&](uint32_t calls) {
    for (uint32_t i = 0; i < calls; i++) {
      Access(*writer, now, i % 64 * 4, i);                         // answered in place
      for (int k = 0; k < 8; k++) Access(*writer, now, 0x5a0, 1);  // folds
      RequestRecord request;
      request.header = MmioWrite(0, 0, payload.size());
      request.payload.size = payload.size();
      request.payload.data = payload;
      writer->Request(request, now += 100);  // whole payload
      ReplyRecord refused;
      request = {};
      request.header = MmioRead(0, 0, 4);
      refused.call = writer->Request(request, now += 100);
      refused.reply = {1, 0, 0};
      writer->Reply(refused, now += 100);  // a Reply packet
    }
  };
  run(1000);
  const uint64_t before = Allocations();
  run(4000);  // 17 MB: more than fifteen segments
  EXPECT_EQ(Allocations(), before);
  EXPECT_GT(writer->bytes_written(), 17'000'000u);
}

// Packets of all sizes across all segment borders, read through a small window.
TEST(File, LargePacketsAcrossSegments) {
  const TempDir dir;
  const std::string path = dir / "t.pb";
  WriterOptions options;
  options.segment_size = 1 << 20;  // becomes kMaxPacket, rounded up
  auto writer = NewFile(path, options);
  std::mt19937 random(5);
  std::vector<uint8_t> data(kMaxChunk);
  for (uint8_t& b : data) b = static_cast<uint8_t>(random());
  uint64_t now = 0;
  std::vector<std::pair<size_t, uint64_t>> want;  // size, sum of data
  for (int i = 0; i < 120; i++) {
    const size_t size = i % 7 == 0 ? kMaxChunk : random() % (i % 3 == 0 ? kMaxChunk : 20'000) + 9;
    const size_t begin = random() % (data.size() - size + 1);
    RequestRecord request;
    request.header = MmioWrite(0, 0, size);
    request.payload.size = size;
    request.payload.data = std::span(data).subspan(begin, size);
    writer->Request(request, now += 100);
    uint64_t sum = 0;
    for (const uint8_t b : request.payload.data) sum = sum * 31 + b;
    want.emplace_back(size, sum);
    for (uint32_t k = random() % 2000; k > 0; k--) {
      Access(*writer, now, k * 4, k);
      want.emplace_back(0, k);
    }
  }
  EXPECT_FALSE(writer->paused());
  EXPECT_TRUE(writer->losses().empty());
  ASSERT_TRUE(writer->Close({}, now));

  LargestAllocation();
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  Record record;
  size_t i = 0;
  while ((*reader)->Next(record)) {
    if (record.kind == Record::Kind::kRequest && record.request.payload.size != 0) {
      uint64_t sum = 0;
      ASSERT_TRUE(record.request.payload.whole());
      for (const uint8_t b : record.request.payload.data) sum = sum * 31 + b;
      ASSERT_EQ(want.at(i), std::pair(record.request.payload.data.size(), sum)) << i;
      i++;
    } else if (record.kind == Record::Kind::kReply) {
      uint32_t value = 0;
      memcpy(&value, record.reply.body.data.data(), 4);
      ASSERT_EQ(want.at(i), std::pair(size_t{0}, uint64_t{value})) << i;
      i++;
    }
  }
  EXPECT_EQ(i, want.size());
  EXPECT_EQ((*reader)->end_state(), EndState::kClean);
  EXPECT_TRUE((*reader)->skipped().empty());
  EXPECT_LT(LargestAllocation(), 3u << 20);

  // The same with damage in the middle: found again, in bounded memory.
  std::vector<uint8_t> bytes = Slurp(path);
  const ReadResult whole = ReadAll(bytes);
  for (size_t at = 100'000; at + 100 < bytes.size(); at += 3'000'000) bytes[at] ^= 0x55;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const ReadResult in_memory = ReadAll(bytes);
  LargestAllocation();
  reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  while ((*reader)->Next(record)) {
  }
  EXPECT_LT(LargestAllocation(), 3u << 20);
  reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  const ReadResult damaged = ReadAll(**reader);
  EXPECT_EQ(damaged.lines, in_memory.lines);
  EXPECT_EQ(damaged.skipped.size(), bytes.size() / 3'000'000 + 1);
  EXPECT_GE(damaged.lines.size() + 2 * damaged.skipped.size(), whole.lines.size());
}

TEST(File, LeftOpenReadsAsNotClosed) {
  const TempDir dir;
  uint64_t now = 0;
  {
    const auto writer = NewFile(dir / "t.pb");
    for (uint32_t i = 0; i < 100; i++) Access(*writer, now, i * 4, i);
  }
  EXPECT_GE(std::filesystem::file_size(dir / "t.pb"), 8u << 20);
  auto reader = TraceReader::Open(dir / "t.pb");
  ASSERT_TRUE(reader);
  const ReadResult result = ReadAll(**reader);
  EXPECT_EQ(result.end, EndState::kNotClosed);
  EXPECT_EQ(result.calls, 100u);
  EXPECT_EQ(result.lines.size(), 202u);
}

}  // namespace
}  // namespace tg::trace
