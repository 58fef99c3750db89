// Where messages begin and end, in both directions. Bytes of the field reports where they give
// some.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "schemas/wire/bytes.h"
#include "tests/proxy/rig.h"
#include "tests/wire/hex.h"

namespace tg::proxy::test {
namespace {

using tg::test::Hex;
using wire::Command;

const Bytes kReset = Hex("05 00*32");
// Field report B04: an SDMA doorbell and a read of the vendor and device word.
const Bytes kDoorbell = Hex("070000000002000000000800000000000008000000000000000000000000000000") +
                        Hex("8001000000000000");
const Bytes kCfgRead = Hex("030000000000000000000000000000000004000000000000000000000000000000");

void Pause(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// What the server saw and what the trace says must be the same, in order.
void ExpectTraceEqualsTraffic(const Decoded& trace, const std::vector<ServedRequest>& served) {
  ASSERT_EQ(trace.calls.size(), served.size());
  for (size_t i = 0; i < served.size(); i++) {
    EXPECT_EQ(trace.calls[i].header, served[i].header) << "call " << i + 1;
    EXPECT_EQ(trace.calls[i].payload_size, served[i].payload.size()) << "call " << i + 1;
    if (served[i].payload.size() <= 4096) {
      EXPECT_EQ(trace.calls[i].payload, served[i].payload) << "call " << i + 1;
    }
  }
}

TEST(Framing, SplitAndGluedMessagesArriveTheSame) {  // B13
  std::vector<Decoded> traces;
  for (const bool glued : {false, true}) {
    Chain chain;
    Client client(chain.proxy->address());
    const Bytes all = kDoorbell + kCfgRead;
    ASSERT_EQ(all.size(), 74u);
    if (glued) {
      ASSERT_TRUE(client.Send(all));
    } else {
      for (const uint8_t byte : all) ASSERT_TRUE(client.Send({byte}));
    }
    EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
    client.Close();
    traces.push_back(chain.proxy->Finish());
    EXPECT_EQ(chain.server->short_headers(), 0);
    ASSERT_EQ(chain.server->count(), 2u);
    EXPECT_EQ(chain.server->requests()[0].payload, Hex("8001000000000000"));
    ExpectTraceEqualsTraffic(traces.back(), chain.server->requests());
    EXPECT_EQ(traces.back().end_state, trace::EndState::kClean);
  }
  ASSERT_EQ(traces[0].calls.size(), traces[1].calls.size());
  for (size_t i = 0; i < traces[0].calls.size(); i++) {
    EXPECT_EQ(traces[0].calls[i].header, traces[1].calls[i].header);
    EXPECT_EQ(traces[0].calls[i].reply, traces[1].calls[i].reply);
    EXPECT_EQ(traces[0].calls[i].body, traces[1].calls[i].body);
  }
}

TEST(Framing, HeaderCutAtEveryByte) {
  Chain chain;
  Client client(chain.proxy->address());
  const Bytes all = kDoorbell + kCfgRead;
  for (size_t cut = 1; cut < all.size(); cut++) {
    ASSERT_TRUE(client.Send(Bytes(all.begin(), all.begin() + cut)));
    Pause(1);
    ASSERT_TRUE(client.Send(Bytes(all.begin() + cut, all.end())));
    ASSERT_EQ(client.Recv(17), Reply(0, 0x744c1002)) << "cut at " << cut;
  }
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->short_headers(), 0);
  EXPECT_EQ(chain.server->count(), 2 * 73u);
  ExpectTraceEqualsTraffic(trace, chain.server->requests());
}

TEST(Framing, ThousandsOfPostedWritesInOneSend) {
  Chain chain;
  Client client(chain.proxy->address());
  Bytes all;
  for (uint32_t i = 0; i < 20000; i++) {
    Bytes value(8);
    StoreLe<uint64_t>(value.data(), 0x1122334400000000ull + i);
    all = std::move(all) + Write(0, 8 * i, value);
  }
  ASSERT_TRUE(client.Send(all + kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->short_headers(), 0);
  EXPECT_EQ(chain.server->count(), 20001u);
  ExpectTraceEqualsTraffic(trace, chain.server->requests());
}

// When the server's first byte comes: before the client has sent all, or after.
struct FirstByte {
  std::atomic<bool> all_sent = false, came = false, came_after_all = false;
  void operator()(int fd, StubServer& server) {
    uint8_t byte;
    if (::recv(fd, &byte, 1, MSG_PEEK) == 1) {
      came_after_all = all_sent.load();
      came = true;
    }
    server.AppRules(fd);
  }
};

TEST(Framing, PayloadIsHeldUntilItIsComplete) {
  for (const size_t size : {size_t{8}, size_t{4096}, size_t{300'000}, size_t{wire::kHoldLimit}}) {
    const Bytes payload = Pattern(size);
    const Bytes message = Write(0, 0, payload);
    for (const size_t cut : {size_t{33}, size_t{34}, message.size() - 1}) {
      FirstByte first;
      Chain chain(std::ref(first));
      Client client(chain.proxy->address());
      const auto at = message.begin() + static_cast<ptrdiff_t>(cut);
      ASSERT_TRUE(client.Send(Bytes(message.begin(), at)));
      chain.proxy->Rounds();
      EXPECT_FALSE(first.came) << size << " bytes, cut at " << cut;
      first.all_sent = true;
      ASSERT_TRUE(client.Send(Bytes(at, message.end())));
      ASSERT_TRUE(chain.server->WaitFor(1));
      EXPECT_TRUE(first.came_after_all) << size << " bytes, cut at " << cut;
      EXPECT_EQ(chain.server->requests()[0].payload, payload);
      client.Close();
      chain.proxy->Finish();
      EXPECT_EQ(chain.proxy->counters().to_server, message.size());
    }
  }
}

TEST(Framing, LargerPayloadIsPassedOnAsItComes) {
  FirstByte first;
  Chain chain(std::ref(first));
  Client client(chain.proxy->address());
  const Bytes payload = Pattern(wire::kHoldLimit + 1);
  const Bytes message = Write(0, 0, payload);
  ASSERT_TRUE(client.Send(Bytes(message.begin(), message.end() - 1)));
  EXPECT_TRUE(Eventually([&] { return first.came.load(); }));
  EXPECT_FALSE(first.came_after_all);
  first.all_sent = true;
  ASSERT_TRUE(client.Send(Bytes(message.end() - 1, message.end())));
  ASSERT_TRUE(chain.server->WaitFor(1));
  EXPECT_EQ(chain.server->requests()[0].payload, payload);
}

TEST(Framing, DyingClientsHalfPayloadNeverReachesTheServer) {
  std::atomic<ssize_t> first{-2};
  Chain chain([&](int fd, StubServer&) {
    uint8_t bytes[64];
    first = ::recv(fd, bytes, sizeof bytes, 0);
  });
  {
    Client client(chain.proxy->address());
    const Bytes message = Write(0, 0x40, Pattern(1 << 20));
    ASSERT_TRUE(client.Send(Bytes(message.begin(), message.begin() + 700000)));
  }
  const Decoded trace = chain.proxy->Finish();
  EXPECT_TRUE(Eventually([&] { return first != -2; }));
  EXPECT_EQ(first, 0);  // end of stream, and not one byte before
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_TRUE(trace.calls[0].truncated);
  EXPECT_EQ(trace.calls[0].header.arg0, 0x40u);
  const auto ends = trace.Events(tinygpu::trace::SessionEvent::DISCONNECT);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].closed_first(), "client");
  EXPECT_EQ(ends[0].undelivered_to_server(), 700000u);
}

TEST(Framing, HeaderOfADyingClientNeverReachesTheServer) {
  for (const size_t cut : {1u, 17u, 26u, 32u}) {
    std::atomic<ssize_t> first{-2};
    Chain chain([&](int fd, StubServer&) {
      uint8_t bytes[64];
      first = ::recv(fd, bytes, sizeof bytes, 0);
    });
    {
      Client client(chain.proxy->address());
      ASSERT_TRUE(client.Send(Bytes(kReset.begin(), kReset.begin() + static_cast<long>(cut))));
    }
    const Decoded trace = chain.proxy->Finish();
    EXPECT_TRUE(Eventually([&] { return first != -2; }));
    EXPECT_EQ(first, 0) << cut;
  }
}

// Payloads and bodies of all sizes, both sides sending in pieces of random size.
TEST(Framing, RandomChunksBothWaysAreExact) {
  const size_t sizes[] = {0,      1, 4, 8, 4096, 4097, 65536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1,
                          5 << 20};
  Chain chain(
      [](int fd, StubServer& server) {
        std::mt19937 random(7);
        // Reading in one piece as the app does, answering in many.
        while (const auto request = server.Next(fd)) {
          if (request->header.command != static_cast<uint8_t>(Command::kMmioRead)) continue;
          const Bytes all =
              Reply(0, request->header.arg1) +
              Pattern(request->header.arg1, static_cast<uint32_t>(request->header.arg0));
          for (size_t at = 0; at < all.size();) {
            const size_t n = std::min<size_t>(all.size() - at, 1 + random() % 100000);
            if (!Send(fd, Bytes(all.begin() + static_cast<long>(at),
                                all.begin() + static_cast<long>(at + n))))
              return;
            at += n;
          }
        }
      },
      {.bodies = BodyPolicy::kFull});
  Client client(chain.proxy->address());
  std::mt19937 random(5);
  uint32_t seed = 1;
  for (const size_t size : sizes) {
    const Bytes message =
        Write(2, seed, Pattern(size, seed)) + Request(Command::kMmioRead, 5, seed, size);
    for (size_t at = 0; at < message.size();) {
      const size_t n = std::min<size_t>(message.size() - at, 1 + random() % 70000);
      ASSERT_TRUE(client.Send(Bytes(message.begin() + static_cast<long>(at),
                                    message.begin() + static_cast<long>(at + n))));
      at += n;
    }
    ASSERT_EQ(client.Recv(17), Reply(0, size));
    ASSERT_EQ(client.Recv(size), Pattern(size, seed)) << size;
    seed++;
  }
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->short_headers(), 0);
  const auto served = chain.server->requests();
  ASSERT_EQ(served.size(), 2 * std::size(sizes));
  ASSERT_EQ(trace.calls.size(), served.size());
  for (size_t i = 0; i < std::size(sizes); i++) {
    const auto s = static_cast<uint32_t>(i + 1);
    EXPECT_EQ(served[2 * i].payload, Pattern(sizes[i], s));
    EXPECT_EQ(trace.calls[2 * i].header, served[2 * i].header);
    EXPECT_EQ(trace.WholePayload(2 * i + 1), served[2 * i].payload) << sizes[i];
    EXPECT_EQ(trace.WholeBody(2 * i + 2), Pattern(sizes[i], s)) << sizes[i];
  }
}

TEST(Framing, LargePayloadIsStreamedNotHeld) {
  Chain chain([](int fd, StubServer&) {
    Bytes all = RecvAll(fd, 33 + (2 << 20));
    (void)Send(fd, Reply(0, all.size()));  // before the rest has been sent
    RecvAll(fd, 2 << 20);
  });
  Client client(chain.proxy->address());
  const Bytes message = Write(0, 0, Pattern(4 << 20));
  ASSERT_TRUE(client.Send(Bytes(message.begin(), message.begin() + 33 + (2 << 20))));
  EXPECT_EQ(client.Recv(17), Reply(0, 33 + (2 << 20)));
}

// Field report T6, and: an absurd length makes no allocation.
TEST(Framing, AbsurdLengthsAreStreamed) {
  Chain chain([](int fd, StubServer&) { RecvAll(fd, 33 + 1000); });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kMmioWrite, 0, 0, 1ull << 62) + Pattern(1000)));
  EXPECT_TRUE(client.AtEnd());
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].payload_size, 1ull << 62);
  EXPECT_EQ(chain.proxy->CountLog("over 64 MiB this overruns a static buffer"), 1);
  EXPECT_EQ(trace.Events(tinygpu::trace::SessionEvent::POISON).size(), 1u);
}

TEST(Framing, PipelinedReadsAreAnsweredInOrder) {
  Chain chain;
  Client client(chain.proxy->address());
  Bytes all, expected;
  for (uint32_t i = 0; i < 2000; i++) {
    all = std::move(all) + Request(Command::kMmioRead, 5, 4 * i, 4);
    expected = std::move(expected) + Reply(0, 4) + Pattern(4, 4 * i);
  }
  std::thread sender([&] { EXPECT_TRUE(client.Send(all)); });
  EXPECT_EQ(client.Recv(expected.size()), expected);
  sender.join();
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 2000u);
  for (uint32_t i = 0; i < 2000; i++) {
    EXPECT_EQ(trace.calls[i].header.arg0, 4 * i);
    EXPECT_TRUE(trace.calls[i].answered);
    EXPECT_EQ(trace.calls[i].body, Pattern(4, 4 * i));
  }
}

// The server does not read for a while: nothing is lost, nothing grows without bound.
TEST(Framing, SlowServerHoldsTheClientBack) {
  std::atomic<bool> go{false};
  Chain chain([&](int fd, StubServer& server) {
    while (!go) Pause(1);
    server.AppRules(fd);
  });
  Client client(chain.proxy->address());
  const size_t kWrites = 200;
  std::atomic<size_t> sent{0};
  std::thread sender([&] {
    for (size_t i = 0; i < kWrites; i++, sent++)
      EXPECT_TRUE(client.Send(Write(0, i, Pattern(100000, static_cast<uint32_t>(i)))));
    EXPECT_TRUE(client.Send(kCfgRead));
  });
  Pause(200);
  const size_t stuck_at = sent;
  EXPECT_LT(stuck_at, kWrites);
  go = true;
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  sender.join();
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  const auto served = chain.server->requests();
  ASSERT_EQ(served.size(), kWrites + 1);
  EXPECT_EQ(chain.server->short_headers(), 0);
  for (size_t i = 0; i < kWrites; i++)
    EXPECT_EQ(served[i].payload, Pattern(100000, static_cast<uint32_t>(i)));
}

// The client does not read for a while.
TEST(Framing, SlowClientHoldsTheServerBack) {
  Chain chain;
  Client client(chain.proxy->address());
  const size_t size = 8 << 20;
  ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 0, 3, size)));
  Pause(200);
  EXPECT_EQ(client.Recv(17), Reply(0, size));
  EXPECT_EQ(client.Recv(size), Pattern(size, 3));
}

TEST(Framing, UnsolicitedReplyIsForwardedAndSaid) {  // B04
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Reply(0));  // the well-meant acknowledgement
    (void)server.Next(fd);
    (void)Send(fd, Hex("0002104c74000000000000000000000000"));
    (void)server.Next(fd);
    (void)Send(fd, Reply(0, 4) + Pattern(4));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kDoorbell));
  EXPECT_EQ(client.Recv(17), Reply(0));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Hex("0002104c74000000000000000000000000"));
  ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 5, 0x10, 4)));
  EXPECT_EQ(client.Recv(21), Reply(0, 4) + Pattern(4));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.proxy->CountLog("17 bytes from server, but no request is waiting (last request: "
                                  "MMIO_WRITE bar2+0x800, posted)"),
            1);
  // Requests stay framed, replies are kept as they came.
  EXPECT_EQ(trace.calls.size(), 3u);
  ASSERT_EQ(trace.Raws().size(), 3u);
  EXPECT_TRUE(trace.Raws()[0].from_server());
  EXPECT_EQ(trace.Raws()[0].data().size(), 17u);
  EXPECT_EQ(trace.Events(tinygpu::trace::SessionEvent::RAW).size(), 1u);
}

TEST(Framing, NoAlarmWithoutTheStrayReply) {  // B04, control
  Chain chain;
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kDoorbell));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  EXPECT_TRUE(chain.proxy->Finish().Raws().empty());
  EXPECT_EQ(chain.proxy->CountLog("no request is waiting"), 0);
}

TEST(Framing, UnknownCommandPassesRawInBothDirections) {
  const Bytes unknown = Hex("c8") + Pattern(80);
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Reply(0, 0x744c1002));
    EXPECT_EQ(RecvAll(fd, unknown.size()), unknown);
    (void)Send(fd, Pattern(5, 9));
    EXPECT_EQ(RecvAll(fd, 33), kCfgRead);  // not framed any more, still passed on
    (void)Send(fd, Pattern(100, 10));
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kCfgRead + unknown));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  EXPECT_EQ(client.Recv(5), Pattern(5, 9));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(100), Pattern(100, 10));
  EXPECT_TRUE(client.AtEnd());
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.proxy->CountLog("client sent command 200"), 1);
  EXPECT_EQ(trace.calls.size(), 1u);
  std::string to_server, to_client;
  for (const auto& raw : trace.Raws()) (raw.from_server() ? to_client : to_server) += raw.data();
  EXPECT_EQ(Text(to_server), unknown + kCfgRead);
  EXPECT_EQ(Text(to_client), Pattern(5, 9) + Pattern(100, 10));
}

TEST(Framing, ShortUnknownCommandDoesNotHang) {
  Chain chain([&](int fd, StubServer&) {
    EXPECT_EQ(RecvAll(fd, 3), Hex("f00102"));
    (void)Send(fd, Text("ok"));
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Hex("f00102")));
  EXPECT_EQ(client.Recv(2), Text("ok"));
}

TEST(Framing, ZeroLengthAccessesHaveNoPayload) {  // T10
  std::atomic<int> seen{0};
  Chain chain([&](int fd, StubServer& server) {
    while (const auto request = server.Next(fd)) {
      seen++;
      if (request->header.command == 3) (void)Send(fd, Reply(0, 1));
    }
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(
      client.Send(Hex("0a0000000003000000000000000000000000000000000000000000000000000000")));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 1));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(seen, 2);
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_FALSE(trace.calls[0].answered);
  EXPECT_TRUE(trace.calls[1].answered);
}

TEST(Framing, EmptyProbeAnswer) {  // T9
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Reply(0));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kProbe, 0, 0, 16, 0x1002) + Pattern(16)));
  EXPECT_EQ(client.Recv(17), Reply(0));
  EXPECT_TRUE(chain.proxy->WaitLog("PROBE answered with no device"));
}

TEST(Framing, BarNumberBeyondEightBits) {  // T5
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Reply(0, 1, 2));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(
      client.Send(Hex("010000000000010000000000000000000000000000000000000000000000000000")));
  EXPECT_EQ(client.Recv(17), Reply(0, 1, 2));
  EXPECT_TRUE(chain.proxy->WaitLog("bar 256 (server truncates to 0)"));
  EXPECT_EQ(chain.server->requests()[0].header.bar, 256u);  // unchanged all the same
}

TEST(Framing, R1FrameIsRecognisedBySilence) {  // B15
  const Bytes frame = Hex("0105000000000000000000000000000000000000000000000000");
  ASSERT_EQ(frame.size(), 26u);
  const Bytes answer = Hex("00000010000000000000001000007f0000");
  Chain chain([&](int fd, StubServer&) {
    EXPECT_EQ(RecvAll(fd, 26), frame);
    (void)Send(fd, answer);
    EXPECT_EQ(RecvAll(fd, 34), Hex("0700 1000000000000000 0800000000000000 00*8 1122334455667788"));
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(frame));
  EXPECT_EQ(client.Recv(17), answer);
  EXPECT_TRUE(chain.proxy->WaitLog("looks like R1 frame"));
  // From here on without waiting: a write of 8 bytes is 34 bytes long.
  ASSERT_TRUE(client.Send(Hex("0700 1000000000000000 0800000000000000 00*8 1122334455667788")));
  EXPECT_TRUE(client.AtEnd());
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_EQ(trace.calls[0].header.bar, 5u);
  EXPECT_EQ(trace.calls[0].reply, (wire::ReplyHeader{0, 0x100000, 0x7f0000100000}));
  EXPECT_EQ(trace.calls[1].payload, Hex("1122334455667788"));
  const auto revisions = trace.Events(tinygpu::trace::SessionEvent::REVISION);
  ASSERT_EQ(revisions.size(), 1u);
  EXPECT_EQ(revisions[0].revision(), 1u);
}

TEST(Framing, ProtocolOptionNeedsNoSilence) {
  const Bytes frame = Hex("0105000000000000000000000000000000000000000000000000");
  Chain chain(
      [&](int fd, StubServer&) {
        EXPECT_EQ(RecvAll(fd, 26), frame);
        (void)Send(fd, Reply(0, 1, 2));
        RecvAll(fd, 1);
      },
      {.revision = wire::Revision::kR1});
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(frame));
  EXPECT_EQ(client.Recv(17), Reply(0, 1, 2));
  EXPECT_EQ(chain.proxy->CountLog("looks like R1"), 0);
}

TEST(Framing, ReplyShortOfItsBodyIsSaid) {  // T3
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Reply(0, 8, 7) + Bytes(8));  // MAP_SYSMEM: region 7 with one page
    (void)server.Next(fd);
    (void)Send(fd, Hex("0020000000000000000000000000000000") + Pattern(16));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kMapSysmem, 0, 4096)));
  EXPECT_EQ(client.Recv(25).size(), 25u);
  ASSERT_TRUE(
      client.Send(Hex("090000000007000000f00f00000000000020000000000000000000000000000000")));
  EXPECT_EQ(client.Recv(33).size(), 33u);
  EXPECT_TRUE(
      chain.proxy->WaitLog("reply short by 16 bytes; region 7 is 0x1000 long, read 0xff0..0x1010"));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_EQ(trace.calls[1].body_size, 32u);
  EXPECT_EQ(trace.calls[1].body, Pattern(16));
  ASSERT_EQ(trace.Regions().size(), 1u);
  EXPECT_EQ(trace.Regions()[0].index(), 7u);
}

}  // namespace
}  // namespace tg::proxy::test
