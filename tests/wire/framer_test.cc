#include "schemas/wire/framer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/wire/hex.h"

namespace tg::wire {
namespace {

using test::Hex;
using Bytes = std::vector<uint8_t>;

Bytes Cat(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

Bytes Request(RequestHeader header, size_t payload = 0) {
  const auto head = EncodeRequest(header);
  Bytes out(head.begin(), head.end());
  for (size_t i = 0; i < payload; i++) out.push_back(static_cast<uint8_t>(i * 7 + 1));
  return out;
}

Bytes Reply(ReplyHeader header, size_t body = 0) {
  const auto head = EncodeReply(header);
  Bytes out(head.begin(), head.end());
  for (size_t i = 0; i < body; i++) out.push_back(static_cast<uint8_t>(i * 5 + 3));
  return out;
}

// What came out of a stream, in words: one line per message, pieces of one message joined.
// Pushes `stream` in pieces that end at `cuts` (all at once when empty) and checks on the way that
// every byte comes out once and in order.
struct Seen {
  std::vector<std::string> lines;
  Bytes forwarded;
  std::vector<size_t> sizes;  // bytes of each event
};

std::string Describe(const RequestHeader& h) {
  return std::string(CommandName(h.command)) + " bar" + std::to_string(h.bar) + " " +
         std::to_string(h.arg0) + "+" + std::to_string(h.arg1);
}

Seen RunRequests(RequestFramer& framer, const Bytes& stream, std::vector<size_t> cuts = {}) {
  Seen seen;
  Bytes buffer;
  size_t at = 0;
  cuts.push_back(stream.size());
  for (size_t cut : cuts) {
    buffer.insert(buffer.end(), stream.begin() + at, stream.begin() + cut);
    at = cut;
    for (;;) {
      const RequestEvent event = framer.Next(buffer);
      if (event.kind == RequestEvent::Kind::kNeedMore) {
        EXPECT_TRUE(event.bytes.empty());
        break;
      }
      EXPECT_FALSE(event.bytes.empty());
      seen.forwarded.insert(seen.forwarded.end(), event.bytes.begin(), event.bytes.end());
      seen.sizes.push_back(event.bytes.size());
      if (event.kind == RequestEvent::Kind::kRequest) {
        seen.lines.push_back(Describe(event.header));
        EXPECT_GE(event.bytes.size(), RequestSize(framer.revision()));  // header never split
        if (event.payload_size <= kHoldLimit) {
          EXPECT_TRUE(event.complete());
        }
      } else if (event.kind == RequestEvent::Kind::kRaw && event.raw_starts) {
        seen.lines.push_back("raw: " + std::string(RawReasonText(event.raw_reason)));
      }
      buffer.erase(buffer.begin(), buffer.begin() + event.bytes.size());
    }
  }
  return seen;
}

const Bytes kWrite8 = Request({7, 0, 2, 0x800, 8, 0}, 8);
const Bytes kCfgRead = Request({3, 0, 0, 0, 4, 0});

TEST(RequestFramer, WholeMessagesOneByOneAndGlued) {
  // B13: MMIO_WRITE (41 bytes) and CFG_READ (33), as 74 one-byte pieces and as one piece.
  const Bytes stream = Cat({kWrite8, kCfgRead});
  ASSERT_EQ(stream.size(), 74u);
  const std::vector<std::string> expected = {"MMIO_WRITE bar2 2048+8", "CFG_READ bar0 0+4"};
  RequestFramer whole;
  Seen seen = RunRequests(whole, stream);
  EXPECT_EQ(seen.lines, expected);
  EXPECT_EQ(seen.sizes, (std::vector<size_t>{41, 33}));
  std::vector<size_t> every;
  for (size_t i = 1; i < stream.size(); i++) every.push_back(i);
  RequestFramer bytewise;
  seen = RunRequests(bytewise, stream, every);
  EXPECT_EQ(seen.lines, expected);
  EXPECT_EQ(seen.sizes, (std::vector<size_t>{41, 33}));
  EXPECT_EQ(seen.forwarded, stream);
}

TEST(RequestFramer, CutAtEveryByte) {
  const Bytes stream = Cat({Request({11}), kWrite8, Request({7, 0, 0, 4096, 100, 0}, 100),
                            Request({10, 0, 7, 0, 0, 0}), kCfgRead});
  RequestFramer reference;
  const Seen expected = RunRequests(reference, stream);
  ASSERT_EQ(expected.lines.size(), 5u);
  for (size_t cut = 1; cut < stream.size(); cut++) {
    RequestFramer framer;
    const Seen seen = RunRequests(framer, stream, {cut});
    EXPECT_EQ(seen.lines, expected.lines) << cut;
    EXPECT_EQ(seen.sizes, expected.sizes) << cut;
    EXPECT_EQ(seen.forwarded, stream) << cut;
  }
}

TEST(RequestFramer, PayloadUpToTheLimitIsHeldALargerOneStreams) {
  const Bytes held = Request({7, 0, 0, 0, kHoldLimit, 0}, kHoldLimit);
  RequestFramer framer(Revision::kR2);
  EXPECT_EQ(framer.Next({held.data(), held.size() - 1}).kind, RequestEvent::Kind::kNeedMore);
  RequestEvent event = framer.Next(held);
  EXPECT_EQ(event.kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(event.bytes.size(), held.size());

  const Bytes large = Request({7, 0, 0, 0, kHoldLimit + 1, 0}, kHoldLimit + 1);
  event = framer.Next({large.data(), 40});
  EXPECT_EQ(event.kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(event.bytes.size(), 40u);
  EXPECT_EQ(event.payload.size(), 7u);
  EXPECT_FALSE(event.complete());
  EXPECT_EQ(framer.payload_missing(), kHoldLimit + 1 - 7);
  EXPECT_EQ(framer.Next({}).kind, RequestEvent::Kind::kNeedMore);
  const Bytes rest_and_next = Cat({{large.begin() + 40, large.end()}, kCfgRead});
  event = framer.Next(rest_and_next);
  EXPECT_EQ(event.kind, RequestEvent::Kind::kPayloadChunk);
  EXPECT_EQ(event.payload_offset, 7u);
  EXPECT_EQ(event.bytes.size(), large.size() - 40);  // not a byte of the next message
  EXPECT_TRUE(event.complete());
  event = framer.Next(kCfgRead);
  EXPECT_EQ(event.kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(event.header.command, 3);
}

TEST(RequestFramer, AbsurdLengthsOnlyStream) {
  RequestFramer framer(Revision::kR2);
  const Bytes head = Request({7, 0, 0, 0, UINT64_MAX, 0}, 5);
  const RequestEvent event = framer.Next(head);
  EXPECT_EQ(event.kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(event.bytes.size(), 38u);
  EXPECT_EQ(framer.payload_missing(), UINT64_MAX - 5);
}

TEST(RequestFramer, UnknownCommandGoesRawFromItsFirstByte) {
  Bytes stream = Cat({kCfgRead, Request({200, 0, 1, 2, 3, 4}), Hex("aabbcc"), kCfgRead});
  RequestFramer framer;
  const Seen seen = RunRequests(framer, stream);
  EXPECT_EQ(seen.lines, (std::vector<std::string>{
                            "CFG_READ bar0 0+4", "raw: unknown command, its length is not known"}));
  EXPECT_EQ(seen.forwarded, stream);
  EXPECT_TRUE(framer.raw());
}

TEST(RequestFramer, ShortUnknownCommandIsLetGoAfterSilence) {
  RequestFramer framer;
  const Bytes head = Hex("c8010203");
  EXPECT_EQ(framer.Next(head).kind, RequestEvent::Kind::kNeedMore);
  EXPECT_TRUE(framer.OnSilence(head));
  const RequestEvent event = framer.Next(head);
  EXPECT_EQ(event.kind, RequestEvent::Kind::kRaw);
  EXPECT_EQ(event.bytes.size(), 4u);
  EXPECT_EQ(event.header.command, 0xc8);
}

struct RevisionCase {
  const char* what;
  Bytes bytes;
  bool silence;  // call OnSilence once after the first try
  Revision expected;
  std::vector<std::string> lines;
};

TEST(RequestFramer, TellsRevisionsApart) {
  const Bytes r1_map5 = Hex("0105 00*24");
  const Bytes r1_map0 = Hex("0100 00*24");
  const auto old = [](RequestHeader h) {
    const auto bytes = EncodeRequestR1(h);
    return Bytes(bytes.begin(), bytes.end());
  };
  const std::vector<RevisionCase> cases = {
      {"TCP client opens with PROBE",
       Request({0, 0, 0, 0, 0, 0x1002}),
       false,
       Revision::kR2,
       {"PROBE bar0 0+0"}},
      {"AMD client opens with RESIZE_BAR",
       Request({11}),
       false,
       Revision::kR2,
       {"RESIZE_BAR bar0 0+0"}},
      {"R2 MAP_BAR 0: 33 bytes at once", Request({1}), false, Revision::kR2, {"MAP_BAR bar0 0+0"}},
      {"R2 MAP_BAR 5", Request({1, 0, 5}), false, Revision::kR2, {"MAP_BAR bar5 0+0"}},
      {"26 bytes: not yet", r1_map5, false, Revision::kUndecided, {}},
      {"26 bytes and silence", r1_map5, true, Revision::kR1, {"MAP_BAR bar5 0+0"}},
      {"the ambiguous MAP_BAR 0 and silence", r1_map0, true, Revision::kR1, {"MAP_BAR bar0 0+0"}},
      {"25 bytes and silence prove nothing",
       Bytes(r1_map5.begin(), r1_map5.end() - 1),
       true,
       Revision::kUndecided,
       {}},
      {"a cut R2 MAP_BAR 5 is no R1 frame",
       [] {
         Bytes b = Request({1, 0, 5});
         b.resize(26);
         return b;
       }(),
       true,
       Revision::kUndecided,
       {}},
      {"two R1 frames glued",
       Cat({r1_map0, old({6, 0, 5, 0x100, 4, 0})}),
       false,
       Revision::kR1,
       {"MAP_BAR bar0 0+0", "MMIO_READ bar5 256+4"}},
      {"R1 write with payload, then a read",
       Cat({old({7, 0, 5, 0x58a08, 4, 0}), Hex("1a000000"), old({3, 0, 0, 0, 4, 0})}),
       false,
       Revision::kR1,
       {"MMIO_WRITE bar5 363016+4", "CFG_READ bar0 0+4"}},
  };
  for (const RevisionCase& c : cases) {
    RequestFramer framer;
    Seen seen = RunRequests(framer, c.bytes);
    if (c.silence) {
      EXPECT_EQ(framer.OnSilence(c.bytes), c.expected != Revision::kUndecided) << c.what;
      seen = RunRequests(framer, c.bytes);
    }
    EXPECT_EQ(framer.revision(), c.expected) << c.what;
    EXPECT_EQ(seen.lines, c.lines) << c.what;
  }
}

TEST(RequestFramer, OverrideDecidesAtOnce) {
  RequestFramer framer(Revision::kR1);
  EXPECT_EQ(RunRequests(framer, Hex("0100 00*24")).lines,
            std::vector<std::string>{"MAP_BAR bar0 0+0"});
  // R1 does not know RESIZE_BAR: its length is unknown then.
  EXPECT_EQ(RunRequests(framer, Hex("0b00 00*24")).lines,
            std::vector<std::string>{"raw: unknown command, its length is not known"});
}

// ---- replies ---------------------------------------------------------------------------------

Seen RunReplies(ReplyFramer& framer, Pairing& pairing, const Bytes& stream,
                std::vector<size_t> cuts = {}) {
  Seen seen;
  Bytes buffer;
  size_t at = 0;
  cuts.push_back(stream.size());
  for (size_t cut : cuts) {
    buffer.insert(buffer.end(), stream.begin() + at, stream.begin() + cut);
    at = cut;
    for (;;) {
      const ReplyEvent event = framer.Next(buffer, pairing, Revision::kR2);
      if (event.kind == ReplyEvent::Kind::kNeedMore) break;
      EXPECT_FALSE(event.bytes.empty());
      seen.forwarded.insert(seen.forwarded.end(), event.bytes.begin(), event.bytes.end());
      if (event.kind == ReplyEvent::Kind::kReply) {
        EXPECT_GE(event.bytes.size(), kReplySize);
        seen.lines.push_back(std::to_string(event.request.call) + ":" +
                             std::string(CommandName(event.request.header.command)) + " status " +
                             std::to_string(event.reply.status) + " body " +
                             std::to_string(event.body_size));
      } else if (event.kind == ReplyEvent::Kind::kRaw && event.raw_starts) {
        seen.lines.push_back(std::to_string(event.bytes.size()) + " " +
                             std::string(RawReasonText(event.raw_reason)));
      }
      if (event.kind != ReplyEvent::Kind::kRaw && event.complete()) seen.lines.back() += " done";
      buffer.erase(buffer.begin(), buffer.begin() + event.bytes.size());
    }
  }
  return seen;
}

// Requests 1..5 of every reply shape, and their replies.
void SendAll(Pairing& pairing) {
  pairing.Sent({1, 0, 5}, 1, Revision::kR2);
  pairing.Sent({7, 0, 2, 0x800, 8, 0}, 2, Revision::kR2);  // posted: not queued
  pairing.Sent({6, 0, 0, 0, 300, 0}, 3, Revision::kR2);
  pairing.Sent({2, 0, 0, 0x4000, 0, 0}, 4, Revision::kR2);
  pairing.Sent({8, 0, 0, 8192, 0, 0}, 5, Revision::kR2);
  pairing.Sent({6, 0, 0, 0, 4, 0}, 6, Revision::kR2);
}
Bytes AllReplies() {
  return Cat({Reply({0, 0x7f0000000000, 0x100000}), Reply({0, 300, 0}, 300), Reply({1, 20, 0}, 20),
              Reply({0, 16, 7}, 16), Reply({1, 0, 0})});
}
const std::vector<std::string> kAllReplies = {
    "1:MAP_BAR status 0 body 0 done", "3:MMIO_READ status 0 body 300 done",
    "4:MAP_SYSMEM_FD status 1 body 20 done", "5:MAP_SYSMEM status 0 body 16 done",
    "6:MMIO_READ status 1 body 0 done"};

TEST(ReplyFramer, PairsInOrderCutAtEveryByte) {
  const Bytes stream = AllReplies();
  for (size_t cut = 1; cut < stream.size(); cut++) {
    ReplyFramer framer;
    Pairing pairing;
    SendAll(pairing);
    EXPECT_EQ(pairing.size(), 5u);
    const Seen seen = RunReplies(framer, pairing, stream, {cut});
    EXPECT_EQ(seen.lines, kAllReplies) << cut;
    EXPECT_EQ(seen.forwarded, stream) << cut;
    EXPECT_TRUE(pairing.empty());
  }
}

TEST(ReplyFramer, ABodyIsNotHeldBack) {
  // T3: the server announces 32 bytes and sends 16; the client must get those 16.
  ReplyFramer framer;
  Pairing pairing;
  pairing.Sent({9, 0, 7, 0xff0, 0x20, 0}, 1, Revision::kR2);
  const Bytes short_reply = Reply({0, 0x20, 0}, 16);
  const ReplyEvent event = framer.Next(short_reply, pairing, Revision::kR2);
  EXPECT_EQ(event.kind, ReplyEvent::Kind::kReply);
  EXPECT_EQ(event.bytes.size(), 33u);
  EXPECT_FALSE(event.complete());
  EXPECT_EQ(framer.body_missing(), 16u);
  EXPECT_EQ(pairing.size(), 1u);  // still unanswered
}

TEST(ReplyFramer, UnsolicitedBytesAreReportedOnceAndPassedOn) {
  // B04: an acknowledgement of a posted write.
  ReplyFramer framer;
  Pairing pairing;
  pairing.Sent({7, 0, 2, 0x800, 8, 0}, 1, Revision::kR2);
  const Bytes stray = Reply({0, 0, 0});
  EXPECT_EQ(RunReplies(framer, pairing, stray).lines,
            std::vector<std::string>{"17 bytes from server, but no request is waiting"});
  pairing.Sent({3, 0, 0, 0, 4, 0}, 2, Revision::kR2);
  const Bytes later = Reply({0, 0x744c1002, 0});
  const Seen seen = RunReplies(framer, pairing, later);
  EXPECT_TRUE(seen.lines.empty());
  EXPECT_EQ(seen.forwarded, later);
  EXPECT_TRUE(framer.raw());
}

TEST(ReplyFramer, GoingRawFinishesTheBodyFirst) {
  ReplyFramer framer;
  Pairing pairing;
  pairing.Sent({6, 0, 0, 0, 8, 0}, 1, Revision::kR2);
  const Bytes reply = Reply({0, 8, 0}, 8);
  EXPECT_FALSE(framer.Next({reply.data(), 20}, pairing, Revision::kR2).complete());
  framer.GoRaw(RawReason::kUnknownCommand);
  const Bytes rest = Cat({{reply.begin() + 20, reply.end()}, Hex("ff")});
  ReplyEvent event = framer.Next(rest, pairing, Revision::kR2);
  EXPECT_EQ(event.kind, ReplyEvent::Kind::kBodyChunk);
  EXPECT_EQ(event.bytes.size(), 5u);
  EXPECT_TRUE(event.complete());
  const Bytes raw = Hex("ff");
  event = framer.Next(raw, pairing, Revision::kR2);
  EXPECT_EQ(event.kind, ReplyEvent::Kind::kRaw);
  EXPECT_TRUE(event.raw_starts);
}

TEST(Pairing, KeepsOrderWhileItGrowsAndWraps) {
  Pairing pairing;
  uint64_t sent = 0, popped = 0;
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < 7; i++) pairing.Sent({3, 0, 0, 0, 4, 0}, ++sent, Revision::kR2);
    for (int i = 0; i < 6; i++) {
      ASSERT_EQ(pairing.front().call, ++popped);
      pairing.Pop();
    }
  }
  EXPECT_EQ(pairing.size(), 200u);
  EXPECT_EQ(pairing.at(199).call, sent);
}

TEST(Framers, RandomChunksOfARandomConversation) {
  std::mt19937 random(20260816);
  for (int round = 0; round < 60; round++) {
    Bytes requests, replies;
    std::vector<std::string> expected_requests, expected_replies;
    Pairing pairing;
    for (int i = 0; i < 40; i++) {
      const uint8_t command = static_cast<uint8_t>(random() % kCommandCount);
      RequestHeader h{command,         0, static_cast<uint32_t>(random() % 6), random() % 4096,
                      random() % 5000, 0};
      if (i == 0) h = {11};  // what an AMD session begins with
      const CommandInfo* info = FindCommand(h.command);
      const Bytes message = Request(h, info->payload ? h.arg1 : 0);
      requests.insert(requests.end(), message.begin(), message.end());
      expected_requests.push_back(Describe(h));
      pairing.Sent(h, static_cast<uint64_t>(i), Revision::kR2);
      if (!info->reply) continue;
      const ReplyHeader r{static_cast<uint8_t>(random() % 4 == 0), random() % 300, random() % 9};
      const size_t body = r.status || info->body == BodyRule::kResp0 ? r.resp0
                          : info->body == BodyRule::kArg1            ? h.arg1
                                                                     : 0;
      const Bytes answer = Reply(r, body);
      replies.insert(replies.end(), answer.begin(), answer.end());
      expected_replies.push_back(std::to_string(i) + ":" + std::string(info->name) + " status " +
                                 std::to_string(r.status) + " body " + std::to_string(body) +
                                 " done");
    }
    const auto cuts = [&random](size_t size) {
      std::vector<size_t> out;
      for (size_t at = 0; at < size; at += 1 + random() % 400) out.push_back(at);
      return out;
    };
    RequestFramer request_framer;
    Seen seen = RunRequests(request_framer, requests, cuts(requests.size()));
    EXPECT_EQ(seen.lines, expected_requests);
    EXPECT_EQ(seen.forwarded, requests);
    ReplyFramer reply_framer;
    seen = RunReplies(reply_framer, pairing, replies, cuts(replies.size()));
    EXPECT_EQ(seen.lines, expected_replies);
    EXPECT_EQ(seen.forwarded, replies);
  }
}

}  // namespace
}  // namespace tg::wire
