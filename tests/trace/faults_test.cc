// Full disks, slow disks, broken disks, power cuts: the traffic goes on, what was lost is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "tests/trace/testing.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;
using ::testing::HasSubstr;

constexpr uint64_t kSegment = kMaxPacket;  // the smallest one
static_assert(kSegment % (64 * 1024) == 0);

WriterOptions SmallSegments() {
  WriterOptions options;
  options.segment_size = kSegment;
  options.patience_ms = 10'000;  // no losses but those that a test is about
  return options;
}

struct Seen {
  std::set<uint64_t> calls;
  std::vector<proto::Loss> losses;
  std::optional<proto::End> end;
  ReadResult result;
};

// Checks on the way that call n read offset 4 * n: numbers are right behind a loss.
Seen Look(TestTrace& t) {
  Seen seen;
  auto reader = TraceReader::FromBytes(t.Bytes());
  EXPECT_TRUE(reader);
  Record record;
  while ((*reader)->Next(record)) {
    if (record.kind == Record::Kind::kRequest) {
      EXPECT_EQ(record.request.header.arg0, 4 * record.call);
      seen.calls.insert(record.call);
    } else if (record.kind == Record::Kind::kPacket && record.packet->has_loss()) {
      seen.losses.push_back(record.packet->loss());
    } else if (record.kind == Record::Kind::kPacket && record.packet->has_end()) {
      seen.end = record.packet->end();
    }
    EXPECT_FALSE(record.after_damage);
  }
  seen.result.end = (*reader)->end_state();
  seen.result.calls = (*reader)->calls();
  EXPECT_TRUE((*reader)->skipped().empty());
  return seen;
}

void Access(TestTrace& t) {
  const uint64_t n = t.writer->calls() + 1;
  t.Read4(0, 4 * n, static_cast<uint32_t>(n));
}

// Up to a place in the file, quickly.
void FillUpTo(TestTrace& t, uint64_t place) {
  constexpr size_t kPiece = 64 * 1024;
  proto::Packet packet;
  packet.mutable_sysmem()->set_data(std::string(kPiece, 'x'));
  while (t.writer->bytes_written() + 2 * kPiece < place) t.writer->Append(packet, t.now);
}

// Until recording stops, with calls, for want of the segment that begins at `border`.
void Fill(TestTrace& t, uint64_t border) {
  FillUpTo(t, border);
  for (int i = 0; i < 100'000 && !t.writer->paused(); i++) Access(t);
  ASSERT_TRUE(t.writer->paused());
}

// Accesses until recording goes on; the writer tries again about every second.
void UntilResumed(TestTrace& t) {
  for (int i = 0; i < 1000 && t.writer->paused(); i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Access(t);
  }
  ASSERT_FALSE(t.writer->paused());
}

TEST(Faults, DiskFullPausesAndSpaceResumes) {
  TestTrace t(SmallSegments());
  t.file->limit = 3 * kSegment;
  Fill(t, 3 * kSegment);
  const uint64_t first_lost = t.writer->calls();
  for (int i = 0; i < 100; i++) Access(t);
  t.file->limit = UINT64_MAX;
  UntilResumed(t);
  for (int i = 0; i < 1000; i++) Access(t);
  t.Close();

  const Seen seen = Look(t);
  ASSERT_EQ(seen.losses.size(), 1u);
  const proto::Loss& loss = seen.losses[0];
  EXPECT_EQ(loss.cause(), proto::Loss::DISK_FULL);
  EXPECT_THAT(loss.detail(), HasSubstr("no space"));
  EXPECT_GE(loss.calls(), 101u);
  EXPECT_EQ(seen.calls.size() + loss.calls(), t.writer->calls());
  EXPECT_EQ(seen.calls.count(first_lost - 1), 1u);
  for (uint64_t i = 0; i < loss.calls(); i++) EXPECT_EQ(seen.calls.count(first_lost + i), 0u);
  EXPECT_EQ(loss.packets(), 2 * loss.calls());  // a request and a reply each
  EXPECT_GT(loss.bytes(), 24 * loss.calls());
  EXPECT_EQ(loss.first_time(), 2000 * first_lost - 1000);
  EXPECT_EQ(seen.result.end, EndState::kClean);
  EXPECT_EQ(seen.result.calls, t.writer->calls());
  ASSERT_TRUE(seen.end);
  ASSERT_EQ(seen.end->losses_size(), 1);
  EXPECT_EQ(seen.end->losses(0).calls(), loss.calls());
  ASSERT_EQ(t.writer->losses().size(), 1u);
  EXPECT_EQ(t.writer->losses()[0].cause, proto::Loss::DISK_FULL);
  EXPECT_EQ(t.writer->losses()[0].calls, loss.calls());
}

TEST(Faults, AFileOnAFullDiskIsStillClosed) {
  TestTrace t(SmallSegments());
  t.file->limit = 2 * kSegment;
  Fill(t, 2 * kSegment);
  for (int i = 0; i < 500; i++) Access(t);
  t.Close("client closed");
  const Seen seen = Look(t);
  EXPECT_EQ(seen.result.end, EndState::kClean);
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->reason(), "client closed");
  EXPECT_EQ(seen.end->calls(), t.writer->calls());
  ASSERT_EQ(seen.losses.size(), 1u);
  EXPECT_EQ(seen.losses[0].calls(), 501u);
  EXPECT_EQ(seen.calls.size() + 501, t.writer->calls());
}

TEST(Faults, IoErrorIsNamed) {
  TestTrace t(SmallSegments());
  t.file->limit = 2 * kSegment;
  t.file->limit_code = Error::Code::kIo;
  Fill(t, 2 * kSegment);
  t.Close();
  const Seen seen = Look(t);
  ASSERT_EQ(seen.losses.size(), 1u);
  EXPECT_EQ(seen.losses[0].cause(), proto::Loss::IO_ERROR);
}

TEST(Faults, NoRoomAtTheBeginningIsAnError) {
  auto file = std::make_shared<MemoryFile>();
  file->limit = 0;
  const auto writer = TraceWriter::Create(std::make_unique<MemorySink>(file), {}, SmallHeader());
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, Error::Code::kNoSpace);
}

// A disk that takes too long is not waited for.
TEST(Faults, SlowDiskIsALossAndNotADelay) {
  WriterOptions options = SmallSegments();
  options.patience_ms = 20;
  TestTrace t(options);
  while (t.file->maps < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  t.file->stuck = true;
  Fill(t, 2 * kSegment);
  for (int i = 0; i < 100; i++) Access(t);
  t.file->stuck = false;
  UntilResumed(t);
  t.Close();
  const Seen seen = Look(t);
  ASSERT_EQ(seen.losses.size(), 1u);
  EXPECT_EQ(seen.losses[0].cause(), proto::Loss::TOO_SLOW);
  EXPECT_GE(seen.losses[0].calls(), 101u);
  EXPECT_EQ(seen.calls.size() + seen.losses[0].calls(), t.writer->calls());
}

// The last packet changes in place: that needs no room.
TEST(Faults, OpenAnswersAndRunsGoOnWhileTheDiskIsFull) {
  TestTrace t(SmallSegments());
  t.file->limit = 2 * kSegment;
  Fill(t, 2 * kSegment);
  // The packet at the end of the file is a read that was answered; lose one request, then poll.
  const uint64_t size = t.writer->bytes_written();
  for (int i = 0; i < 100; i++) Access(t);
  EXPECT_EQ(t.writer->bytes_written(), size);
}

TEST(Faults, TooLargePacketsAreCounted) {
  TestTrace t;
  proto::Packet packet;
  packet.mutable_sysmem()->set_data(std::string(2 << 20, 'x'));
  t.writer->Append(packet, t.now);
  const std::vector<uint8_t> data(kMaxChunk + 100, 5);
  t.Request(MmioWrite(0, 0, data.size()), data);
  t.Note("after");
  const Seen seen = [&] {
    Seen s;
    auto reader = TraceReader::FromBytes(t.Bytes());
    Record record;
    while ((*reader)->Next(record)) {
      if (record.kind == Record::Kind::kPacket && record.packet->has_loss())
        s.losses.push_back(record.packet->loss());
      if (record.kind == Record::Kind::kRequest) {
        EXPECT_EQ(record.request.payload.size, kMaxChunk + 100);
        EXPECT_EQ(record.request.payload.data.size(), kMaxChunk);
        EXPECT_FALSE(record.request.payload.whole());
      }
    }
    EXPECT_TRUE((*reader)->skipped().empty());
    return s;
  }();
  ASSERT_EQ(seen.losses.size(), 2u);
  EXPECT_EQ(seen.losses[0].cause(), proto::Loss::TOO_LARGE);
  EXPECT_EQ(seen.losses[0].packets(), 1u);
  EXPECT_GE(seen.losses[0].bytes(), 2u << 20);
  EXPECT_EQ(seen.losses[1].bytes(), 100u);
  EXPECT_EQ(t.writer->losses()[0].packets, 1u);
}

TEST(Faults, LossesOfOthersAreInTheTotals) {
  TestTrace t;
  proto::Packet packet;
  packet.mutable_loss()->set_cause(proto::Loss::LAG);
  packet.mutable_loss()->set_packets(7);
  t.writer->Append(packet, t.now);
  ASSERT_EQ(t.writer->losses().size(), 1u);
  EXPECT_EQ(t.writer->losses()[0].cause, proto::Loss::LAG);
  EXPECT_EQ(t.writer->losses()[0].packets, 7u);
}

TEST(Faults, NeverMoreThanThreeSegmentsAreMapped) {
  TestTrace t(SmallSegments());
  for (uint64_t i = 1; i <= 20; i++) {
    FillUpTo(t, i * kSegment);
    while (t.writer->bytes_written() < i * kSegment) Access(t);
  }
  t.Close();
  EXPECT_LE(t.file->mapped_most, 3u);
  EXPECT_EQ(t.file->mapped_now, 0u);
  EXPECT_EQ(t.file->maps, t.file->unmaps);
}

// ---- power cuts ------------------------------------------------------------------------------

// Of the lines only one: the last record's kind, call, time and place.
ReadResult Summary(std::vector<uint8_t> bytes) {
  ReadResult result;
  auto reader = TraceReader::FromBytes(std::move(bytes));
  if (!reader) return result;
  Record record;
  while ((*reader)->Next(record)) {
  }
  result = ReadAll(**reader);
  std::string last;
  for (const uint64_t v :
       {static_cast<uint64_t>(record.kind), record.call, record.time_ns, record.offset})
    last += std::to_string(v) + " ";
  result.lines = {last};
  return result;
}

// Everything that was there at the last Sync() is there after the power cut.
TEST(PowerCut, SyncedRecordsSurvive) {
  TestTrace t(SmallSegments());
  std::mt19937 random(2);
  for (int round = 0; round < 40; round++) {
    // Crosses segments now and then.
    for (uint32_t n = random() % 1500; n > 0; n--) Access(t);
    FillUpTo(t, t.writer->bytes_written() + random() % 400'000);
    for (uint32_t n = random() % 50; n > 0; n--) t.Read4(5, 0x5a0, 1);  // a run
    ASSERT_TRUE(t.writer->Sync());
    const ReadResult now = Summary(t.Bytes());
    std::vector<uint8_t> disk;
    {
      const std::lock_guard lock(t.file->mutex);
      disk = t.file->durable;
    }
    // What comes after is not on the disk yet.
    for (int i = 0; i < 10; i++) Access(t);
    const ReadResult after = Summary(std::move(disk));
    ASSERT_EQ(after.packets, now.packets);
    ASSERT_EQ(after.calls, t.writer->calls() - 10);
    ASSERT_EQ(after.lines, now.lines);
    ASSERT_EQ(after.end, EndState::kNotClosed);
    ASSERT_TRUE(after.skipped.empty());
  }
  EXPECT_GT(t.writer->bytes_written(), 2 * kSegment);
}

// The kernel writes back when it likes, and a disk sector by sector: whatever part of the later
// changes is on the disk, a synced request is still readable, answered or not.
TEST(PowerCut, TornSectorsNeverHurtASyncedRequest) {
  TestTrace t(SmallSegments());
  std::mt19937 random(4);
  for (int round = 0; round < 800; round++) {
    t.now += 1000;
    const uint64_t n = t.writer->calls() + 1;
    const uint64_t call = t.Request(MmioRead(0, 4 * n, 4));
    ASSERT_TRUE(t.writer->Sync());
    const size_t end = t.writer->bytes_written();
    std::vector<uint8_t> before;
    {
      const std::lock_guard lock(t.file->mutex);
      const size_t begin = end > 8192 ? end - 8192 : 0;
      before.assign(t.file->durable.begin() + static_cast<ptrdiff_t>(begin),
                    t.file->durable.begin() + static_cast<ptrdiff_t>(end));
    }
    t.now += 1000;
    t.Reply(call, {0, 4, 0}, Le4(static_cast<uint32_t>(0x01010101 * n)));
    if (end % 512 > 30) continue;  // only packets at a sector's border can be torn
    std::vector<uint8_t> all = t.file->Bytes(end);
    for (int torn = 0; torn < 4; torn++) {
      // The last two sectors that the packet touches, each old or new.
      std::vector<uint8_t> disk(all.begin(), all.begin() + static_cast<ptrdiff_t>(end));
      const size_t border = end / 512 * 512;
      const auto old_byte = [&](size_t at) { return before[before.size() - (end - at)]; };
      for (size_t at = border - 512; at < end; at++) {
        const bool keep_new = at < border ? torn & 1 : torn & 2;
        if (!keep_new) disk[at] = old_byte(at);
      }
      const ReadResult result = ReadAll(disk);
      ASSERT_EQ(result.calls, n) << torn;
      ASSERT_TRUE(result.skipped.empty()) << torn;
      ASSERT_EQ(result.end, EndState::kNotClosed);
    }
  }
}

// ---- the real file system --------------------------------------------------------------------

// A file size limit stands in for a full disk: growing fails, and without care SIGXFSZ would kill.
TEST(Faults, FileSizeLimitIsLikeAFullDisk) {
  const std::string path = ::testing::TempDir() + "limit." + std::to_string(getpid()) + ".pb";
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto sink = OpenFileSink(path, true);
  ASSERT_TRUE(sink) << sink.error().message;
  rlimit limit = before;
  limit.rlim_cur = 2 * kSegment;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  auto writer = TraceWriter::Create(std::move(*sink), SmallSegments(), SmallHeader());
  ASSERT_TRUE(writer) << writer.error().message;
  uint64_t calls = 0;
  const auto access = [&] {
    RequestRecord request;
    request.header = MmioRead(0, 4 * ++calls, 4);
    (*writer)->Request(request, calls * 1000);
  };
  while (!(*writer)->paused() && calls < 1'000'000) access();
  ASSERT_TRUE((*writer)->paused());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  while ((*writer)->paused()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    access();
  }
  ASSERT_TRUE((*writer)->Close({}, calls * 1000));
  const std::vector<LossTotal> losses = (*writer)->losses();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].cause, proto::Loss::DISK_FULL);
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader);
  const ReadResult result = ReadAll(**reader);
  EXPECT_EQ(result.calls, calls);
  EXPECT_EQ(result.end, EndState::kClean);
  EXPECT_TRUE(result.skipped.empty());
  unlink(path.c_str());
}

}  // namespace
}  // namespace tg::trace
