// Runs of equal calls: which fold, how a run ends, and that a kill in the middle loses none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trace/testing.h"

namespace tg::trace {
namespace {

namespace proto = tinygpu::trace;
using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a reader makes of it, call by call: "COMMAND offset=value" or "...=?" without an answer.
struct Expanded {
  std::vector<std::string> calls;
  size_t repeats = 0;
  uint64_t folded = 0;
};

Expanded Expand(std::vector<uint8_t> bytes) {
  Expanded all;
  auto reader = TraceReader::FromBytes(std::move(bytes));
  if (!reader) return all;
  const auto name = [](const RequestView& r) {
    return std::string(wire::CommandName(r.header.command)) + " " + std::to_string(r.header.arg0);
  };
  const auto value = [](const BodyView& b) {
    return b.data.empty() ? std::string("none") : std::to_string(b.data[0]);
  };
  const auto posted = [&](const RequestView& r) { return "=" + value(r.payload) + " written"; };
  Record record;
  while ((*reader)->Next(record)) {
    switch (record.kind) {
      case Record::Kind::kRequest:
        EXPECT_EQ(record.call, all.calls.size() + 1);
        all.calls.push_back(name(record.request));
        all.calls.back() += record.request.payload.size != 0 ? posted(record.request) : "=?";
        break;
      case Record::Kind::kReply: {
        std::string& call = all.calls.at(record.call - 1);
        EXPECT_EQ(call.back(), '?') << call;
        call.pop_back();
        call += value(record.reply.body) + (record.reply.reply.status != 0 ? " error" : "");
        break;
      }
      case Record::Kind::kRepeat: {
        EXPECT_EQ(record.call, all.calls.size() + 1);
        all.repeats++;
        all.folded += record.issued;
        uint64_t answers = record.answered;
        for (uint64_t i = 0; i < record.issued; i++) {
          const RepeatedCall& c = record.pattern[i % record.pattern.size()];
          all.calls.push_back(name(c.request));
          if (!c.reply)
            all.calls.back() += posted(c.request);
          else if (answers > 0 && answers--)
            all.calls.back() += "=" + value(c.reply->body);
          else
            all.calls.back() += "=?";
        }
        EXPECT_EQ(answers, 0u);
        break;
      }
      case Record::Kind::kPacket:
        break;
    }
  }
  return all;
}

TEST(Fold, TwoPeriodsStandOneByOneThenTheRunIsOnePacket) {
  for (const uint64_t period : {1u, 2u, 5u, 8u}) {
    SCOPED_TRACE(period);
    TestTrace t;
    std::vector<std::string> want;
    for (uint64_t i = 0; i < 100; i++) {
      t.Read4(5, i % period * 4, static_cast<uint32_t>(i % period));
      want.push_back("MMIO_READ " + std::to_string(i % period * 4) + "=" +
                     std::to_string(i % period));
    }
    const Expanded all = Expand(t.Bytes());
    EXPECT_EQ(all.calls, want);
    EXPECT_EQ(all.repeats, 1u);
    EXPECT_EQ(all.folded, 100 - 2 * period);
  }
}

TEST(Fold, NinePollsInTurnDoNotFold) {
  TestTrace t;
  for (uint32_t i = 0; i < 90; i++) t.Read4(5, i % 9 * 4, i % 9);
  EXPECT_EQ(Expand(t.Bytes()).repeats, 0u);
  EXPECT_EQ(Expand(t.Bytes()).calls.size(), 90u);
}

TEST(Fold, TimesAndLatenciesOfTheRun) {
  TestTrace t;
  t.Read4(5, 4, 7, 1000);
  t.Read4(5, 4, 7, 1000);  // replied at 4000
  for (const uint64_t ns : {2000, 9000, 500}) t.Read4(5, 4, 7, ns);
  t.now += 50'000;
  t.Write4(0, 0, 1, 0);
  const ReadResult result = ReadAll(t.Bytes());
  ASSERT_EQ(result.lines.size(), 8u);
  // First request 2000 after that, last one 500 after 4000 + 2 * (2000 + 9000).
  EXPECT_EQ(result.lines[6],
            "#3 @6000 repeat 3/3 until 26500 latency 500..9000 {MMIO_READ 0 5 4 4 0 [0:] -> 0 4 0 "
            "[4:07000000]}");
  EXPECT_EQ(result.lines[7], "#6 @77000 MMIO_WRITE 0 0 0 4 0 [4:01000000]");
}

TEST(Fold, EndsByAnotherRequest) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Read4(5, 8, 1);
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  const Expanded all = Expand(t.Bytes());
  EXPECT_EQ(all.calls.size(), 41u);
  EXPECT_EQ(all.calls[20], "MMIO_READ 8=1");
  EXPECT_EQ(all.repeats, 2u);
  EXPECT_EQ(all.folded, 36u);
}

TEST(Fold, EndsByAnotherValue) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Read4(5, 4, 2);  // the poll is over
  t.Read4(5, 4, 2);
  const ReadResult result = ReadAll(t.Bytes());
  const Expanded all = Expand(t.Bytes());
  EXPECT_EQ(all.calls.size(), 22u);
  EXPECT_EQ(all.calls[19], "MMIO_READ 4=1");
  EXPECT_EQ(all.calls[20], "MMIO_READ 4=2");
  EXPECT_EQ(all.calls[21], "MMIO_READ 4=2");
  EXPECT_EQ(all.repeats, 1u);
  EXPECT_EQ(all.folded, 19u);  // the request was still in the run
  EXPECT_THAT(result.lines[7], HasSubstr("#21 @42000 -> 0 4 0 [4:02000000] in 1000"));
}

TEST(Fold, EndsByAnError) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Reply(t.Request(MmioRead(5, 4, 4)), {1, 0, 0});
  const Expanded all = Expand(t.Bytes());
  EXPECT_EQ(all.calls.back(), "MMIO_READ 4=none error");
  EXPECT_EQ(all.folded, 19u);
}

TEST(Fold, NoReplyAtTheKill) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Request(MmioRead(5, 4, 4));
  const Expanded all = Expand(t.Bytes());
  ASSERT_EQ(all.calls.size(), 21u);
  EXPECT_EQ(all.calls[19], "MMIO_READ 4=1");
  EXPECT_EQ(all.calls[20], "MMIO_READ 4=?");
  EXPECT_EQ(all.folded, 19u);
}

TEST(Fold, PipelinedRequestEndsIt) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  const uint64_t a = t.Request(MmioRead(5, 4, 4));
  const uint64_t b = t.Request(MmioRead(5, 4, 4));
  t.Reply(a, {0, 4, 0}, Le4(1));
  t.Reply(b, {0, 4, 0}, Le4(9));
  const Expanded all = Expand(t.Bytes());
  ASSERT_EQ(all.calls.size(), 22u);
  EXPECT_EQ(all.calls[20], "MMIO_READ 4=1");
  EXPECT_EQ(all.calls[21], "MMIO_READ 4=9");
  EXPECT_EQ(all.folded, 19u);
}

TEST(Fold, EndsByAnotherPacketAndByClose) {
  TestTrace t;
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Note("something happened");
  for (int i = 0; i < 20; i++) t.Read4(5, 4, 1);
  t.Close();
  const ReadResult result = ReadAll(t.Bytes());
  const Expanded all = Expand(t.Bytes());
  EXPECT_EQ(all.calls.size(), 40u);
  EXPECT_EQ(all.repeats, 2u);
  EXPECT_EQ(all.folded, 36u);
  EXPECT_EQ(result.end, EndState::kClean);
  // The note stands where it happened: behind call 20.
  const auto note = std::find_if(result.lines.begin(), result.lines.end(), [](const auto& line) {
    return line.find("something happened") != std::string::npos;
  });
  ASSERT_NE(note, result.lines.end());
  EXPECT_EQ(note->substr(0, 4), "#20 ");
}

// A doorbell and a poll by turns, as a driver does it that submits and waits.
TEST(Fold, PostedWritesAreCallsOfThePattern) {
  TestTrace t;
  for (int i = 0; i < 50; i++) {
    t.Write4(2, 0x800, 3);
    t.Read4(5, 4, 1);
  }
  t.Write4(2, 0x800, 3);
  const Expanded all = Expand(t.Bytes());
  ASSERT_EQ(all.calls.size(), 101u);
  EXPECT_EQ(all.calls[98], "MMIO_WRITE 2048=3 written");
  EXPECT_EQ(all.calls[99], "MMIO_READ 4=1");
  EXPECT_EQ(all.calls[100], "MMIO_WRITE 2048=3 written");
  EXPECT_EQ(all.folded, 97u);
  EXPECT_EQ(all.repeats, 1u);
}

// Calls that have no Op number fold too.
TEST(Fold, ConfigurationReadsAndErrors) {
  wire::RequestHeader h = MmioRead(0, 0x10, 4);
  h.command = static_cast<uint8_t>(wire::Command::kCfgRead);
  const std::string text = "device is gone";
  TestTrace t;
  for (int i = 0; i < 50; i++)
    t.Reply(t.Request(h), {1, text.size(), 0},
            {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  const ReadResult result = ReadAll(t.Bytes());
  ASSERT_EQ(result.lines.size(), 2 + 4 + 1u);
  EXPECT_EQ(result.lines.back(),
            "#3 @0 repeat 48/48 until 0 latency 100..100 {CFG_READ 0 0 16 4 0 [0:] -> 1 14 0 "
            "[14:64657669636520697320676f6e65]}");
}

TEST(Fold, WhatMustNotFold) {
  const auto folded = [](const auto& call) {
    TestTrace t;
    for (int i = 0; i < 10; i++) call(t);
    EXPECT_EQ(ReadAll(t.Bytes()).calls, 10u);
    return Expand(t.Bytes()).folded;
  };
  const std::vector<uint8_t> bytes(65, 3);
  const auto read = [&](size_t size) {
    return [&bytes, size](TestTrace& t) {
      t.Reply(t.Request(MmioRead(0, 0, size)), {0, size, 0}, std::span(bytes).first(size));
    };
  };
  EXPECT_EQ(folded(read(64)), 8u);
  EXPECT_EQ(folded(read(65)), 0u);      // too large
  EXPECT_EQ(folded([&](TestTrace& t) {  // only the first bytes are known
              RequestRecord r;
              r.header = MmioWrite(0, 0, 64);
              r.payload.size = 64;
              r.payload.data = std::span(bytes).first(8);
              t.writer->Request(r, t.now);
            }),
            0u);
  EXPECT_EQ(folded([](TestTrace& t) {
              ReplyRecord r;
              r.call = t.Request(MmioRead(0, 0, 4));
              r.descriptors = 1;
              t.writer->Reply(r, t.now);
            }),
            0u);
  EXPECT_EQ(folded([](TestTrace& t) {
              RequestRecord r;
              r.header = MmioWrite(0, 0, 4);
              r.refused = "read-only";
              t.writer->Request(r, t.now);
            }),
            0u);
  uint32_t value = 0;
  EXPECT_EQ(folded([&](TestTrace& t) { t.Read4(0, 0, value++); }), 0u);
  EXPECT_EQ(folded([](TestTrace& t) {
              t.Read4(0, 0, 1);
              t.Note("between");
            }),
            0u);
}

TEST(Fold, CanBeTurnedOff) {
  WriterOptions options;
  options.fold = false;
  TestTrace t(options);
  for (int i = 0; i < 100; i++) t.Read4(5, 4, 1);
  EXPECT_EQ(Expand(t.Bytes()).repeats, 0u);
  EXPECT_EQ(Expand(t.Bytes()).calls.size(), 100u);
}

// field-reports B11: 13.5 million polls made 4.3 GB elsewhere.
TEST(Fold, FiveMillionPollsInLessThanOneMebibyte) {
  TestTrace t;
  const auto value = Le4(0);
  for (int i = 0; i < 5'000'000; i++) {
    t.now += 5000;
    t.Reply(t.Request(MmioRead(5, 0x5a0, 4)), {0, 4, 0}, value);
  }
  EXPECT_LT(t.writer->bytes_written(), 1u << 20);
  t.Close();
  const ReadResult result = ReadAll(t.Bytes());
  EXPECT_EQ(result.calls, 5'000'000u);
  EXPECT_EQ(result.end, EndState::kClean);
}

// While a run goes on, markers must not end it, and the next packets' clock must be right.
TEST(Fold, ClockAfterALongRun) {
  TestTrace t;
  for (int i = 0; i < 1000; i++) t.Read4(5, 4, 1, 1'000'000);
  t.Write4(0, 4, 9, 1'000'000);
  EXPECT_EQ(ReadAll(t.Bytes()).lines.back(), "#1001 @2001000000 MMIO_WRITE 0 0 4 4 0 [4:09000000]");
}

class RepeatStates : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; i++) t_.Read4(5, 4, 1);  // 8 in the run; last states: 8/7 and 8/8
    t_.Write4(0, 4, 9);
    bytes_ = t_.Bytes();
    const std::array<uint8_t, 3> a = {0x12, 51, 0x09};  // state_a, 51 bytes, field 1 as fixed64
    const std::array<uint8_t, 3> b = {0x1a, 51, 0x09};
    a_ = Find(a);
    b_ = Find(b);
    ASSERT_EQ(b_, a_ + 53);
  }
  size_t Find(const std::array<uint8_t, 3>& pattern) const {
    return static_cast<size_t>(
        std::search(bytes_.begin(), bytes_.end(), pattern.begin(), pattern.end()) - bytes_.begin() +
        2);
  }
  static std::string RepeatLine(const ReadResult& result) {
    for (const std::string& line : result.lines) {
      const size_t at = line.find("repeat");
      if (at != std::string::npos) return line.substr(at, line.find(" until") - at);
    }
    return "";
  }
  TestTrace t_;
  std::vector<uint8_t> bytes_;
  size_t a_ = 0, b_ = 0;
};

TEST_F(RepeatStates, TheOtherOneCountsWhenOneIsBroken) {
  EXPECT_EQ(RepeatLine(ReadAll(bytes_)), "repeat 8/8");
  // 1/0 went into a at first, then b and a by turns: 15 changes, the last one into b.
  for (size_t i = 0; i < 51; i++) {
    std::vector<uint8_t> broken = bytes_;
    broken[b_ + i] ^= 0x10;
    ReadResult result = ReadAll(broken);
    EXPECT_EQ(RepeatLine(result), "repeat 8/7") << i;
    EXPECT_TRUE(result.skipped.empty());
    EXPECT_THAT(result.lines.back(), HasSubstr("#11 "));

    broken = bytes_;
    broken[a_ + i] ^= 0x10;
    result = ReadAll(broken);
    EXPECT_EQ(RepeatLine(result), "repeat 8/8") << i;
    EXPECT_TRUE(result.skipped.empty());
  }
}

TEST_F(RepeatStates, BothBrokenIsDamage) {
  bytes_[a_ + 3] ^= 1;
  bytes_[b_ + 3] ^= 1;
  const ReadResult result = ReadAll(bytes_);
  EXPECT_EQ(RepeatLine(result), "");
  ASSERT_EQ(result.skipped.size(), 1u);
  EXPECT_THAT(result.lines.back(), HasSubstr("MMIO_WRITE 0 0 4 4 0"));
  EXPECT_TRUE(result.after_damage.back());
}

}  // namespace
}  // namespace tg::trace
