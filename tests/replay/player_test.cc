#include "replay/serve/player.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/replay/session.h"

namespace tg::replay {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using Kind = Answer::Kind;

class Playing {
 public:
  Playing(Session& session, const PlayerOptions& options, bool torn = false)
      : survey_(Examined(session.Bytes(torn))), player_(session.Open(torn), survey_, options) {
    EXPECT_TRUE(player_.Connect());
  }
  Answer Send(const wire::RequestHeader& header, const std::vector<uint8_t>& payload = {}) {
    return player_.OnRequest(Ask(header, payload));
  }
  // Value of an answered 4-byte read.
  uint32_t Read4(uint32_t bar, uint64_t offset) {
    const Answer answer = Send(MmioRead(bar, offset, 4));
    EXPECT_EQ(answer.kind, Kind::kReply) << answer.problem;
    uint32_t value = 0xdead;
    if (answer.body.size() == 4) std::memcpy(&value, answer.body.data(), 4);
    return value;
  }
  Kind Write4(uint32_t bar, uint64_t offset, uint32_t value) {
    return Send(MmioWrite(bar, offset, 4), Le(value, 4)).kind;
  }
  Player& player() { return player_; }

 private:
  Survey survey_;
  Player player_;
};

// What the client does with a descriptor.
class Mapping {
 public:
  Mapping(int fd, size_t size) : size_(size) {
    data_ = static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  template <typename T>
  T Get(size_t offset) const {
    T value;
    std::memcpy(&value, data_ + offset, sizeof value);
    return value;
  }
  void Set(size_t offset, uint32_t value) { std::memcpy(data_ + offset, &value, sizeof value); }

 private:
  size_t size_;
  uint8_t* data_;
};

constexpr PlayerOptions kStrict{};
constexpr PlayerOptions kAnyPolls{.any_polls = true};
constexpr PlayerOptions kLenient{.any_polls = true, .map_addresses = true};

TEST(Player, StrictPlaysTheRecordingInOrder) {
  Session session;
  session.Connect();
  session.Call(Header(wire::Command::kResizeBar, 0), {0, 0, 0});
  session.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000'0000, 0x10'0000});
  session.Call(Header(wire::Command::kMmioRead, 9, 0, 4), {1, 3, 0}, {'b', 'a', 'd'});
  session.Write4(5, 0x10, 7);
  session.Read4(5, 0x14, 42);
  session.Disconnect();
  Playing play(session, kStrict);
  Answer answer = play.Send(Header(wire::Command::kResizeBar, 0));
  EXPECT_EQ(answer.kind, Kind::kReply);
  EXPECT_EQ(answer.reply, (wire::ReplyHeader{0, 0, 0}));
  answer = play.Send(Header(wire::Command::kMapBar, 5));
  EXPECT_EQ(answer.reply, (wire::ReplyHeader{0, 0x7000'0000, 0x10'0000}));
  answer = play.Send(Header(wire::Command::kMmioRead, 9, 0, 4));
  EXPECT_EQ(answer.reply, (wire::ReplyHeader{1, 3, 0}));
  EXPECT_EQ(std::string(answer.body.begin(), answer.body.end()), "bad");
  EXPECT_EQ(play.Write4(5, 0x10, 7), Kind::kPosted);
  EXPECT_EQ(play.Read4(5, 0x14), 42u);
  EXPECT_EQ(play.player().played(), 5u);
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kFinished);
  EXPECT_FALSE(play.player().Connect());
}

TEST(Player, FirstMessageDiverges) {
  Session session;
  session.Read4(5, 0x378c, 0x2000);
  Playing play(session, kStrict);
  const Answer answer = play.Send(MmioRead(5, 0x3790, 4));
  EXPECT_EQ(answer.kind, Kind::kDiverged);
  EXPECT_EQ(answer.problem,
            "the client diverges from the recording at call #1\n"
            "  expected: MMIO_READ bar5+0x378c 4 bytes -> 0x00002000\n"
            "  actual:   MMIO_READ bar5+0x3790 4 bytes\n"
            "  offset is 0x3790, recorded 0x378c");
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kDiverged);
}

TEST(Player, OtherDataDiverges) {
  Session session;
  session.Posted(MmioWrite(0, 0x1000, 12), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Playing play(session, kStrict);
  const Answer answer =
      play.Send(MmioWrite(0, 0x1000, 12), {1, 2, 3, 4, 5, 6, 0xff, 8, 9, 10, 11, 12});
  EXPECT_EQ(answer.kind, Kind::kDiverged);
  EXPECT_THAT(answer.problem, HasSubstr("differs from byte 0x4 on: 0x08ff0605, recorded "
                                        "0x08070605"));
}

TEST(Player, HistoryHoldsTheLastTwentyFolded) {
  Session session(false);
  for (uint32_t i = 0; i < 30; i++) session.Write4(0, 4 * i, i);
  for (int i = 0; i < 5; i++) session.Read4(5, 0x10, 3);
  session.Write4(0, 0, 9);
  Playing play(session, kStrict);
  for (uint32_t i = 0; i < 30; i++) play.Write4(0, 4 * i, i);
  for (int i = 0; i < 5; i++) play.Read4(5, 0x10);
  EXPECT_EQ(play.Write4(0, 0, 8), Kind::kDiverged);
  const std::vector<std::string> history = play.player().History();
  ASSERT_EQ(history.size(), 20u);
  EXPECT_EQ(history[0], "#12 MMIO_WRITE bar0+0x2c <- 0x0000000b");
  EXPECT_EQ(history[18], "#30 MMIO_WRITE bar0+0x74 <- 0x0000001d");
  EXPECT_EQ(history[19], "#31..35 MMIO_READ bar5+0x10 4 bytes -> 0x00000003  (5 times)");
}

TEST(Player, StrictCountsPolls) {
  Session session;
  for (int i = 0; i < 100; i++) session.Read4(5, 0x100, 0);
  session.Read4(5, 0x100, 1);
  session.Write4(5, 0x200, 1);
  {
    Playing play(session, kStrict);
    for (int i = 0; i < 100; i++) ASSERT_EQ(play.Read4(5, 0x100), 0u);
    EXPECT_EQ(play.Read4(5, 0x100), 1u);
    EXPECT_EQ(play.Write4(5, 0x200, 1), Kind::kPosted);
  }
  Playing play(session, kStrict);
  EXPECT_EQ(play.Read4(5, 0x100), 0u);
  EXPECT_EQ(play.Write4(5, 0x200, 1), Kind::kDiverged);
}

TEST(Player, PollsMayBeFewer) {
  Session session;
  for (int i = 0; i < 1000; i++) session.Read4(5, 0x100, 0);
  session.Read4(5, 0x100, 1);
  session.Write4(5, 0x200, 1);
  session.Read4(5, 0x300, 5);
  Playing play(session, kAnyPolls);
  EXPECT_EQ(play.Read4(5, 0x100), 0u);
  EXPECT_EQ(play.Write4(5, 0x200, 1), Kind::kPosted);
  EXPECT_EQ(play.Read4(5, 0x300), 5u);
  EXPECT_EQ(play.player().skipped_polls(), 1000u);
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kFinished);
}

TEST(Player, PollsMayBeMore) {
  Session session;
  session.Read4(5, 0x100, 0);
  session.Read4(5, 0x100, 1);
  session.Write4(5, 0x200, 1);
  session.Read4(5, 0x300, 9);  // once in the whole trace: no poll
  session.Write4(5, 0x400, 1);
  Playing play(session, kAnyPolls);
  EXPECT_EQ(play.Read4(5, 0x100), 0u);
  for (int i = 0; i < 50; i++) EXPECT_EQ(play.Read4(5, 0x100), 1u);
  EXPECT_EQ(play.player().extra_polls(), 49u);
  EXPECT_EQ(play.Write4(5, 0x200, 1), Kind::kPosted);
  EXPECT_EQ(play.Write4(5, 0x200, 1), Kind::kPosted);  // stores again what it stored
  EXPECT_EQ(play.Write4(5, 0x200, 2), Kind::kDiverged);
  EXPECT_EQ(play.Read4(5, 0x300), 9u);
  EXPECT_EQ(play.Send(MmioRead(5, 0x300, 4)).kind, Kind::kDiverged);
  EXPECT_EQ(play.Write4(5, 0x400, 1), Kind::kPosted);
}

// The client's wait loop on TinyGPU.app: R wptr, R rptr, R wptr, W rptr, R doorbell control; and
// the short form R wptr, W rptr when the wait is over.
void Loop(Session& session, int rounds) {
  for (int i = 0; i < rounds; i++) {
    session.Read4(5, 0x1000, 32);
    session.Read4(5, 0x1004, 32);
    session.Read4(5, 0x1000, 32);
    session.Write4(5, 0x1004, 32);
    session.Read4(5, 0x2000, 0);
  }
}
void Short(Session& session) {
  session.Read4(5, 0x1000, 32);
  session.Write4(5, 0x1004, 32);
}
bool SendLoop(Playing& play, int rounds) {
  bool good = true;
  for (int i = 0; i < rounds; i++) {
    good = play.Read4(5, 0x1000) == 32 && play.Read4(5, 0x1004) == 32 &&
           play.Read4(5, 0x1000) == 32 && play.Write4(5, 0x1004, 32) == Kind::kPosted &&
           play.Read4(5, 0x2000) == 0 && good;
  }
  return good;
}
bool SendShort(Playing& play) {
  return play.Read4(5, 0x1000) == 32 && play.Write4(5, 0x1004, 32) == Kind::kPosted;
}

TEST(Player, WaitLoopOfAnyLength) {
  for (const int recorded : {0, 1, 2, 7, 500}) {
    for (const int now : {0, 1, 2, 3, 40, 700}) {
      Session session;
      Short(session);
      session.Doorbell(0x44);
      Loop(session, recorded);
      Short(session);
      session.Write4(5, 0x3000, 1);
      session.Doorbell(0x88);
      Loop(session, 2);
      Short(session);
      session.Write4(5, 0x3000, 2);
      Playing play(session, kAnyPolls);
      const std::string what = std::to_string(recorded) + " recorded, " + std::to_string(now);
      EXPECT_TRUE(SendShort(play)) << what;
      ASSERT_EQ(play.Send(MmioWrite(2, 0x800, 8), Le(0x44, 8)).kind, Kind::kPosted) << what;
      if (recorded == 0 && now > 0) {
        // A register that is nowhere near in the recording has no value to give.
        continue;
      }
      EXPECT_TRUE(SendLoop(play, now)) << what;
      EXPECT_TRUE(SendShort(play)) << what;
      ASSERT_EQ(play.Write4(5, 0x3000, 1), Kind::kPosted) << what;
      ASSERT_EQ(play.Send(MmioWrite(2, 0x800, 8), Le(0x88, 8)).kind, Kind::kPosted) << what;
      EXPECT_TRUE(SendLoop(play, 2)) << what;
      EXPECT_TRUE(SendShort(play)) << what;
      // A submission left out is a divergence however polls are counted.
      EXPECT_EQ(play.Write4(5, 0x3000, 2), Kind::kPosted) << what;
      EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kFinished) << what;
    }
  }
}

TEST(Player, DoorbellsAndOtherWritesAreNeverSkipped) {
  Session session;
  Short(session);
  session.Doorbell(0x44);
  Short(session);
  session.Write4(5, 0x3000, 1);
  Playing play(session, kAnyPolls);
  EXPECT_TRUE(SendShort(play));
  const Answer answer = play.Send(MmioWrite(5, 0x3000, 4), Le(1, 4));
  EXPECT_EQ(answer.kind, Kind::kDiverged);
  EXPECT_THAT(answer.problem, HasSubstr("call #3"));
  EXPECT_THAT(answer.problem, HasSubstr("expected: MMIO_WRITE bar2+0x800 <- 0x0000000000000044"));
}

TEST(Player, RegionsHoldWhatTheyHeld) {
  Session session;
  std::vector<uint8_t> contents = Le(0x1'0000'0000, 8);
  const auto length = Le(0x4000, 8);
  contents.insert(contents.end(), length.begin(), length.end());
  contents.resize(64);
  contents[48] = 0x77;
  session.MapFd(0, 0x4000, 0x1'0000'0000, contents);
  session.MapFd(1, 0x8000, 0x2'0000'0000);
  Playing play(session, kStrict);
  Answer answer = play.Send(Header(wire::Command::kMapSysmemFd, 0, 0x4000));
  ASSERT_EQ(answer.kind, Kind::kReply) << answer.problem;
  EXPECT_EQ(answer.reply, (wire::ReplyHeader{0, 0x4000, 0}));
  ASSERT_GE(answer.descriptor, 0);
  {
    const Mapping mapping(answer.descriptor, 0x4000);
    EXPECT_EQ(mapping.Get<uint64_t>(0), 0x1'0000'0000u);
    EXPECT_EQ(mapping.Get<uint64_t>(8), 0x4000u);
    EXPECT_EQ(mapping.Get<uint64_t>(24), 0u);
    EXPECT_EQ(mapping.Get<uint8_t>(48), 0x77u);
  }
  answer = play.Send(Header(wire::Command::kMapSysmemFd, 0, 0x8000));
  ASSERT_GE(answer.descriptor, 0);
  const Mapping mapping(answer.descriptor, 0x8000);
  EXPECT_EQ(mapping.Get<uint64_t>(0), 0x2'0000'0000u);
  EXPECT_EQ(mapping.Get<uint64_t>(8), 0x8000u);
}

TEST(Player, FenceShownAtTheFollowingDoorbellComesAtOnce) {
  Session session;
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Doorbell(0x44);
  session.Memory(0, 0x100, Le(0x11223344, 4));  // ring word of the client
  session.Memory(0, 0x800, Le(0, 4));           // fence: not signalled yet
  session.Read4(5, 0x1000, 1);
  session.Doorbell(0x88);
  session.Memory(0, 0x800, Le(1, 4));  // signalled by now
  session.Memory(0, 0x880, Le(0x44, 8));
  session.Write4(5, 0x3000, 1);
  session.Doorbell(0xcc);
  session.Memory(0, 0x800, Le(2, 4));
  Playing play(session, kAnyPolls);
  const Answer answer = play.Send(Header(wire::Command::kMapSysmemFd, 0, 0x4000));
  ASSERT_GE(answer.descriptor, 0);
  Mapping mapping(answer.descriptor, 0x4000);
  mapping.Set(0x100, 0x55667788);  // here the client has another ring word: it stays
  play.Send(MmioWrite(2, 0x800, 8), Le(0x44, 8));
  EXPECT_EQ(mapping.Get<uint32_t>(0x800), 1u);
  EXPECT_EQ(mapping.Get<uint64_t>(0x880), 0x44u);
  EXPECT_EQ(mapping.Get<uint32_t>(0x100), 0x55667788u);
  EXPECT_EQ(play.Read4(5, 0x1000), 1u);
  play.Send(MmioWrite(2, 0x800, 8), Le(0x88, 8));
  EXPECT_EQ(mapping.Get<uint32_t>(0x800), 2u);
  EXPECT_EQ(play.Write4(5, 0x3000, 1), Kind::kPosted);
}

TEST(Player, SilenceBringsWhatBothSidesChanged) {
  Session session;
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Doorbell(0x44);
  session.Read4(5, 0x1000, 1);
  session.Memory(0, 8, Le(1, 4), tinygpu::trace::SysmemData::END);  // over the address table
  Playing play(session, kAnyPolls);
  const Answer answer = play.Send(Header(wire::Command::kMapSysmemFd, 0, 0x4000));
  Mapping mapping(answer.descriptor, 0x4000);
  mapping.Set(8, 0);  // the client clears its signal
  play.Send(MmioWrite(2, 0x800, 8), Le(0x44, 8));
  EXPECT_EQ(mapping.Get<uint32_t>(8), 0u);
  EXPECT_TRUE(play.player().OnSilence());
  EXPECT_EQ(mapping.Get<uint32_t>(8), 1u);
  EXPECT_FALSE(play.player().OnSilence());
}

TEST(Player, NeverAnsweredStaysUnanswered) {
  Session session;
  session.Connect();
  session.Unanswered(Header(wire::Command::kReset));
  session.Disconnect("client");
  Playing play(session, kStrict);
  const Answer answer = play.Send(Header(wire::Command::kReset));
  EXPECT_EQ(answer.kind, Kind::kSilent);
  EXPECT_EQ(answer.problem, "call #1 was never answered in the recording");
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kFinished);
}

// A server (TinyGPU.app, past the end of a region) or --inject short= had sent less than announced.
TEST(Player, AnswerThatEndedEarlyEndsThereAgain) {
  for (const size_t came : {0u, 1u, 100u}) {
    for (const size_t kept : {size_t{0}, came}) {
      Session session;
      session.Connect();
      const auto header = Header(wire::Command::kSysmemRead, 0, 0xff0, 300);
      std::vector<uint8_t> bytes(came);
      for (size_t i = 0; i < came; i++) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
      session.CutCall(header, 300, bytes, kept);
      session.Read4(5, 0x10, 7);
      session.Disconnect();
      EXPECT_EQ(Examined(session.Bytes()).bodies.count, 0u) << "all that came is in the trace";
      Playing playing(session, {});
      const Answer answer = playing.Send(header);
      ASSERT_EQ(answer.kind, Kind::kReply) << answer.problem;
      EXPECT_EQ(answer.reply.resp0, 300u);
      EXPECT_EQ(std::vector<uint8_t>(answer.body.begin(), answer.body.end()), bytes);
      EXPECT_EQ(answer.zeros, 0u);
      EXPECT_THAT(playing.player().History().back(),
                  HasSubstr("ends after " + std::to_string(came) + " of 300 bytes"));
      EXPECT_EQ(playing.Read4(5, 0x10), 7u);
      EXPECT_EQ(playing.player().Disconnect().kind, Verdict::Kind::kFinished);
    }
  }
}

// Who left inside the answer decides whether another client can be answered so.
TEST(Player, AnswerCutByTheEndOfTheConnection) {
  const auto header = Header(wire::Command::kMmioRead, 0, 0, 300);
  const std::vector<uint8_t> bytes(100, 3);
  for (const bool injected : {false, true}) {
    for (const char* who : {"server", "client"}) {
      Session session;
      session.Connect();
      session.CutCall(header, 300, bytes, 100, injected ? "--inject MMIO_READ:short=100" : "");
      session.Disconnect(who);
      Playing playing(session, {});
      const Answer answer = playing.Send(header);
      if (injected || std::string(who) == "server") {
        ASSERT_EQ(answer.kind, Kind::kReply) << who << answer.problem;
        EXPECT_EQ(answer.body.size(), 100u);
        EXPECT_EQ(playing.player().HangsUp(), std::string(who) == "server");
      } else {
        EXPECT_EQ(answer.kind, Kind::kOver);
        EXPECT_THAT(answer.problem, HasSubstr("it ends after 100 of them"));
      }
    }
  }
}

TEST(Player, TornTraceEndsWithItsLastCall) {
  Session session(false);
  session.Read4(5, 0, 1);
  session.Unanswered(Header(wire::Command::kMmioRead, 5, 4, 4));
  Playing play(session, kStrict, true);
  EXPECT_EQ(play.Read4(5, 0), 1u);
  Answer answer = play.Send(MmioRead(5, 4, 4));
  EXPECT_EQ(answer.kind, Kind::kOver);
  EXPECT_THAT(answer.problem, HasSubstr("call #2 is the last of the trace"));
  answer = play.Send(MmioRead(5, 8, 4));
  EXPECT_EQ(answer.kind, Kind::kOver);
  EXPECT_THAT(answer.problem, HasSubstr("the trace ends here"));
  EXPECT_THAT(answer.problem, HasSubstr("the client sent MMIO_READ bar5+0x8 4 bytes"));
}

TEST(Player, GapsEndTheSession) {
  Session session(false);
  session.Read4(5, 0, 1);
  tinygpu::trace::Packet loss;
  loss.mutable_loss()->set_cause(tinygpu::trace::Loss::IO_ERROR);
  loss.mutable_loss()->set_calls(2);
  session.Append(loss);
  session.Read4(5, 8, 1);
  Playing play(session, kAnyPolls);
  EXPECT_EQ(play.Read4(5, 0), 1u);
  const Answer answer = play.Send(MmioRead(5, 8, 4));
  EXPECT_EQ(answer.kind, Kind::kOver);
  EXPECT_THAT(answer.problem,
              HasSubstr("gap after call #1: 2 calls were not recorded (I/O error)"));
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kLacking);
}

TEST(Player, ClientThatLeavesEarlyAndTheNextOne) {
  Session session;
  session.Connect(1);
  session.Read4(5, 0, 1);
  session.Read4(5, 4, 2);
  session.Disconnect("client", 1);
  session.Connect(2);
  session.Read4(5, 8, 3);
  session.Disconnect("server", 2);
  Playing play(session, kStrict);
  EXPECT_EQ(play.Read4(5, 0), 1u);
  const Verdict verdict = play.player().Disconnect();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kLeftEarly);
  EXPECT_EQ(verdict.text,
            "the client left before call #2 MMIO_READ bar5+0x4 4 bytes -> 0x00000002");
  ASSERT_TRUE(play.player().Connect());
  EXPECT_FALSE(play.player().HangsUp());
  EXPECT_EQ(play.Read4(5, 8), 3u);
  EXPECT_TRUE(play.player().HangsUp());
  EXPECT_EQ(play.player().Disconnect().kind, Verdict::Kind::kFinished);
  EXPECT_FALSE(play.player().Connect());
}

TEST(Player, LenientMapsAddressesConsistently) {
  Session session;
  constexpr uint64_t kFlags = 0x0060'0000'0000'0073;
  for (const uint64_t page : {0x1'0000'0000u, 0x1'0000'1000u, 0x1'0000'0000u, 0x1'0000'2000u})
    session.Posted(MmioWrite(0, 0x8000, 8), Le(page | kFlags, 8));
  Playing play(session, kLenient);
  const auto send = [&](uint64_t word) {
    return play.Send(MmioWrite(0, 0x8000, 8), Le(word, 8)).kind;
  };
  EXPECT_EQ(send(0x7'0000'0000 | 0x71), Kind::kDiverged);  // other flags
  EXPECT_EQ(send(0x7'0000'0000 | kFlags), Kind::kPosted);
  EXPECT_EQ(send(0x7'0000'0000 | kFlags), Kind::kDiverged);  // that page is taken
  EXPECT_EQ(send(0x7'0000'5000 | kFlags), Kind::kPosted);
  EXPECT_EQ(send(0x1'0000'0000 | kFlags), Kind::kDiverged);  // does not follow the first
  EXPECT_EQ(send(0x7'0000'0000 | kFlags), Kind::kPosted);
  EXPECT_EQ(send(0x1'0000'2000 | kFlags), Kind::kPosted);  // the same as recorded
  EXPECT_EQ(play.player().mapped_addresses(), 2u);
}

TEST(Player, RegisterValuesAreNoAddresses) {
  Session session;
  session.Write4(5, 0x100, 0x1234'5000);
  session.Posted(MmioWrite(0, 0, 8), Le(0x5000, 8));
  Playing play(session, kLenient);
  EXPECT_EQ(play.Write4(5, 0x100, 0x1234'6000), Kind::kDiverged);
  EXPECT_EQ(play.Write4(5, 0x100, 0x1234'5000), Kind::kPosted);
  EXPECT_EQ(play.Send(MmioWrite(0, 0, 8), Le(0x6000, 8)).kind, Kind::kDiverged);
}

TEST(Player, PayloadKnownByHash) {
  for (const size_t kept : {256u, 0u}) {  // --bodies head, hash
    Session session(false);
    const std::vector<uint8_t> data(5000, 3);
    trace::RequestRecord request;
    request.header = MmioWrite(0, 0x2000, data.size());
    request.payload.size = data.size();
    request.payload.data = std::span(data).first(kept);
    request.payload.xxh3 = 0xc91a29e81e84b54full;  // of 5000 bytes of value 4: not these
    session.writer().Request(request, session.now());
    Playing play(session, kStrict);
    const Answer answer = play.Send(MmioWrite(0, 0x2000, data.size()), data);
    EXPECT_EQ(answer.kind, Kind::kDiverged);
    EXPECT_THAT(answer.problem, HasSubstr("differs from the recorded hash"));
  }
}

TEST(Player, AutopsyOfTheProxyIsNotExpectedOfTheClient) {
  Session session(false);
  session.Read4(5, 0, 1);
  trace::RequestRecord request;
  request.header = MmioRead(5, 0x9999000, 4);
  request.injected = "autopsy";
  session.writer().Request(request, session.now());
  session.Read4(5, 4, 2);
  Playing play(session, kStrict);
  EXPECT_EQ(play.Read4(5, 0), 1u);
  EXPECT_EQ(play.Read4(5, 4), 2u);
}

}  // namespace
}  // namespace tg::replay
