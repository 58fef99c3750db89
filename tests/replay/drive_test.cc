#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "replay/drive/addresses.h"
#include "replay/drive/driver.h"
#include "replay/drive/permission.h"
#include "replay/proof.h"
#include "replay/script/shared.h"
#include "schemas/amd/registers.h"
#include "schemas/wire/bytes.h"
#include "tests/replay/session.h"

namespace tg::replay {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = DriveResult::Kind;

Deadline Soon() {
  return Deadline::In(milliseconds(10'000));
}

// A server that answers by a function and remembers what it was sent.
class FakeServer {
 public:
  struct Reply {
    bool answer = true;
    wire::ReplyHeader header;
    std::vector<uint8_t> body;
    int descriptor = -1;
    bool close = false;
  };
  using Handler = std::function<Reply(const wire::RequestHeader&, const std::vector<uint8_t>&)>;

  explicit FakeServer(Handler handler) : handler_(std::move(handler)) {
    char name[] = "/tmp/rpcreplay-drive-XXXXXX";
    dir_ = mkdtemp(name);
    auto listener = Listener::Open(address(), false);
    EXPECT_TRUE(listener) << listener.error().message;
    thread_ = std::thread([this, listening = std::move(*listener)]() mutable { Serve(listening); });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
    std::filesystem::remove_all(dir_);
  }
  wire::Address address() const { return *wire::ParseAddress("unix:" + dir_ + "/s"); }
  // What came, once the driver has closed its last connection and all of it was taken.
  const std::vector<wire::RequestHeader>& got() const {
    for (int i = 0; i < 5000 && (served_ < connections_ || connections_ == 0); i++)
      std::this_thread::sleep_for(milliseconds(1));
    return got_;
  }
  int connections() const { return connections_; }

 private:
  void Serve(Listener& listener) {
    while (!stop_) {
      UniqueFd client;
      if (!listener.Accept(client, Deadline::In(milliseconds(20))).ok()) continue;
      connections_++;
      while (!stop_) {
        std::array<uint8_t, wire::kRequestSizeR2> bytes;
        // One receive, as the real one: a header that does not come whole is a failure.
        Transfer head = WaitReadable(client.get(), Deadline::In(milliseconds(20)));
        if (head.end == Transfer::End::kTimeout) continue;
        head = ReceiveOnce(client.get(), bytes, Soon());
        if (head.end == Transfer::End::kEof) break;
        EXPECT_EQ(head.bytes, bytes.size());
        const wire::RequestHeader request = wire::DecodeRequest(bytes);
        std::vector<uint8_t> payload(static_cast<size_t>(wire::PayloadSize(request)));
        EXPECT_TRUE(ReceiveAll(client.get(), payload, Soon()).ok());
        got_.push_back(request);
        const Reply reply = handler_(request, payload);
        if (reply.close) break;
        const wire::CommandInfo* info = wire::FindCommand(request.command);
        if (reply.answer && info && info->reply)
          Send(client.get(), wire::EncodeReply(reply.header), reply.body, reply.descriptor, Soon());
      }
      served_++;
    }
  }

  Handler handler_;
  std::string dir_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::vector<wire::RequestHeader> got_;
  std::atomic<int> connections_{0}, served_{0};
};

struct Driven {
  DriveResult result;
  DriveCounters counters;
  std::vector<std::string> notes;
};

DriverOptions Fast() {
  DriverOptions options;
  options.permission = {true, true, false};
  options.timeout = milliseconds(400);
  options.poll_timeout = milliseconds(400);
  options.settle = milliseconds(100);
  return options;
}

Driven Drive(Session& session, const FakeServer& server, const DriverOptions& options = Fast()) {
  const Survey survey = Examined(session.Bytes());
  auto reader = trace::TraceReader::FromBytes(session.Bytes());
  const DeviceWords words = DeviceWords::Read(**reader);
  Driven driven;
  Driver driver(session.Open(), survey, words, server.address(), options,
                [&](const std::string& text) { driven.notes.push_back(text); });
  driven.result = driver.Run();
  driven.counters = driver.counters();
  return driven;
}

FakeServer::Reply Value4(uint32_t value) {
  return {true, {0, 4, 0}, Le(value, 4)};
}

TEST(Permission, WhatEachCommandNeeds) {
  using wire::Command;
  const auto rule = [](Command command, bool writes, bool reset, bool read_only) {
    return Rule(static_cast<uint8_t>(command), {writes, reset, read_only});
  };
  for (const Command read : {Command::kProbe, Command::kMapBar, Command::kCfgRead,
                             Command::kMmioRead, Command::kSysmemRead, Command::kPing})
    EXPECT_EQ(rule(read, false, false, false), Ruling::kSend) << static_cast<int>(read);
  for (const Command write : {Command::kMapSysmemFd, Command::kMapSysmem, Command::kMmioWrite,
                              Command::kSysmemWrite, Command::kResizeBar}) {
    EXPECT_EQ(rule(write, false, true, false), Ruling::kForbidden) << static_cast<int>(write);
    EXPECT_EQ(rule(write, true, false, false), Ruling::kSend);
    EXPECT_EQ(rule(write, true, true, true), Ruling::kLeaveOut);
  }
  for (const Command reset : {Command::kReset, Command::kCfgWrite}) {
    EXPECT_EQ(rule(reset, true, false, false), Ruling::kForbidden) << static_cast<int>(reset);
    EXPECT_EQ(rule(reset, false, true, false), Ruling::kForbidden);
    EXPECT_EQ(rule(reset, true, true, false), Ruling::kSend);
    EXPECT_EQ(rule(reset, true, true, true), Ruling::kLeaveOut);
  }
  EXPECT_EQ(Rule(200, {true, false, false}), Ruling::kForbidden);
}

TEST(Addresses, OnlyEntriesForHostMemoryAreRewritten) {
  AddressRewriter rewriter;
  rewriter.Add({{0x1'0000'0000, 0x2000}}, {{0x7'0000'0000, 0x1000}, {0x9'0000'0000, 0x1000}});
  std::vector<uint8_t> words = Le(0x0060'0001'0000'1073, 8);  // VALID, SYSTEM
  EXPECT_EQ(rewriter.Rewrite(words), 1u);
  EXPECT_EQ(words, Le(0x0060'0009'0000'0073, 8));
  for (const uint64_t other : {0x0060'0001'0000'1071ull,     // VRAM
                               0x0060'0001'0000'2073ull,     // another page
                               0x0060'0001'0000'1072ull}) {  // not valid
    std::vector<uint8_t> same = Le(other, 8);
    EXPECT_EQ(rewriter.Rewrite(same), 0u);
    EXPECT_EQ(same, Le(other, 8));
  }
}

TEST(Drive, SendsInOrderAndCompares) {
  Session session;
  session.Connect();
  session.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000'0000, 0x10'0000});
  session.Write4(5, 0x10, 7);
  session.Read4(5, 0x14, 42);
  session.Disconnect();
  FakeServer server([](const wire::RequestHeader& request, const std::vector<uint8_t>& payload) {
    if (request.command == static_cast<uint8_t>(wire::Command::kMapBar))
      return FakeServer::Reply{true, {0, 0x1234'5000, 0x10'0000}, {}};  // another address
    if (!payload.empty()) {
      EXPECT_EQ(payload, Le(7, 4));
    }
    return Value4(42);
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kFinished) << driven.result.text;
  EXPECT_EQ(driven.counters.sent, 3u);
  EXPECT_EQ(driven.counters.compared, 2u);
  EXPECT_THAT(server.got(), ElementsAre(Header(wire::Command::kMapBar, 5), MmioWrite(5, 0x10, 4),
                                        MmioRead(5, 0x14, 4)));
}

TEST(Drive, FirstDivergenceIsNamed) {
  Session session;
  session.Write4(5, 0x10, 7);
  session.Read4(5, 0x14, 42);
  session.Read4(5, 0x18, 1);
  FakeServer server([](const auto&, const auto&) { return Value4(43); });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kDiverged);
  EXPECT_EQ(driven.result.call, 2u);
  EXPECT_THAT(driven.result.text, HasSubstr("call #2"));
  EXPECT_THAT(driven.result.text, HasSubstr("MMIO_READ bar5+0x14 4 bytes -> 0x0000002a"));
  EXPECT_THAT(driven.result.text, HasSubstr("now: 0x0000002b"));
  for (const wire::RequestHeader& request : server.got()) {
    EXPECT_NE(request.arg0, 0x18u);
  }
}

TEST(Drive, PollsWaitForTheRecordedValue) {
  Session session;
  session.Write4(5, 0x10, 1);
  for (int i = 0; i < 3; i++) session.Read4(5, 0x20, 0);
  session.Read4(5, 0x20, 1);
  session.Write4(5, 0x10, 2);
  for (const int slow : {0, 2, 60}) {  // the value is there after so many reads
    int reads = 0;
    FakeServer server([&](const wire::RequestHeader& request, const auto&) {
      if (request.command == static_cast<uint8_t>(wire::Command::kMmioRead)) reads++;
      return Value4(reads > slow ? 1 : 0);
    });
    const Driven driven = Drive(session, server);
    EXPECT_EQ(driven.result.kind, Kind::kFinished) << slow << ": " << driven.result.text;
    EXPECT_EQ(server.got().back(), MmioWrite(5, 0x10, 4));
    EXPECT_EQ(reads, slow + 1) << slow;
  }
}

TEST(Drive, PollThatNeverComesTrueEnds) {
  Session session;
  session.Read4(5, 0x20, 0);
  session.Read4(5, 0x20, 1);
  FakeServer server([](const auto&, const auto&) { return Value4(0); });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kDiverged);
  EXPECT_THAT(driven.result.text, HasSubstr("after 0.4 s of asking again"));
}

TEST(Drive, ServerThatStopsAnswering) {
  Session session;
  session.Read4(5, 0x20, 1);
  session.Read4(5, 0x24, 1);
  FakeServer server([](const wire::RequestHeader& request, const auto&) {
    FakeServer::Reply reply = Value4(1);
    reply.answer = request.arg0 != 0x24;
    return reply;
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kSilent);
  EXPECT_THAT(driven.result.text, HasSubstr("call #2 MMIO_READ bar5+0x24 4 bytes"));
  EXPECT_THAT(driven.result.text, HasSubstr("the server stopped answering"));
}

TEST(Drive, ServerThatCloses) {
  Session session;
  session.Read4(5, 0x20, 1);
  FakeServer server([](const auto&, const auto&) {
    FakeServer::Reply reply;
    reply.close = true;
    return reply;
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kSilent);
  EXPECT_THAT(driven.result.text, HasSubstr("call #1"));
  EXPECT_THAT(driven.result.text, HasSubstr("closed the connection"));
}

TEST(Drive, ReplyThatAnnouncesTooMuch) {
  Session session;
  session.Call(Header(wire::Command::kMapSysmem, 0, 0x1000), {0, 8, 0}, Le(0x1000, 8));
  FakeServer server([](const auto&, const auto&) {
    return FakeServer::Reply{true, {0, UINT64_MAX, 0}, {}};
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kFailed);
  EXPECT_THAT(driven.result.text, HasSubstr("this is no reply"));
}

TEST(Drive, ReadOnlySendsReadsAlone) {
  Session session;
  session.Call(Header(wire::Command::kCfgWrite, 0, 4, 2, 6), {0, 0, 0});
  session.Write4(5, 0x10, 7);
  session.Read4(5, 0x14, 42);
  session.Call(Header(wire::Command::kReset), {0, 0, 0});
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Read4(5, 0x18, 43);
  FakeServer server([](const auto&, const auto&) { return Value4(42); });
  DriverOptions options = Fast();
  options.permission = {false, false, true};
  const Driven driven = Drive(session, server, options);
  EXPECT_EQ(driven.result.kind, Kind::kFinished);
  EXPECT_THAT(server.got(), ElementsAre(MmioRead(5, 0x14, 4), MmioRead(5, 0x18, 4)));
  EXPECT_EQ(driven.counters.left_out, 4u);
  EXPECT_EQ(driven.counters.different, 1u);
}

TEST(Drive, StopsWhereItIsTold) {
  Session session(false);
  for (uint32_t i = 0; i < 10; i++) session.Read4(5, 4 * i, 1);
  FakeServer server([](const auto&, const auto&) { return Value4(1); });
  DriverOptions options = Fast();
  options.stop_at = 4;
  const Driven driven = Drive(session, server, options);
  EXPECT_EQ(driven.result.kind, Kind::kStopped);
  EXPECT_EQ(driven.result.call, 5u);
  EXPECT_EQ(server.got().size(), 4u);
}

TEST(Drive, ForbiddenCallsAreNotSent) {
  Session session(false);
  session.Read4(5, 0, 1);
  session.Call(Header(wire::Command::kReset), {0, 0, 0});
  FakeServer server([](const auto&, const auto&) { return Value4(1); });
  DriverOptions options = Fast();
  options.permission = {true, false, false};
  const Driven driven = Drive(session, server, options);
  EXPECT_EQ(driven.result.kind, Kind::kForbidden);
  EXPECT_THAT(driven.result.text, HasSubstr("call #2 RESET -> ok needs --allow-reset"));
  EXPECT_EQ(server.got().size(), 1u);
}

TEST(Drive, KeepsRecordedTimingWhenAsked) {
  Session session(false);
  session.Read4(5, 0, 1);
  session.Read4(5, 4, 1);
  FakeServer server([](const auto&, const auto&) { return Value4(1); });
  DriverOptions options = Fast();
  options.speed = 1e-5;  // 2 us between the two become 200 ms
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Drive(session, server, options).result.kind, Kind::kFinished);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(190));
}

TEST(Drive, SharedMemoryIsFilledBeforeTheDoorbell) {
  Session session;
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Doorbell(0x44);
  session.Memory(0, 0x100, Le(0x11223344, 4));
  session.Read4(5, 0x10, 1);
  session.Doorbell(0x88);
  session.Memory(0, 0x104, Le(0x55667788, 4));
  auto memory = SharedMemory::Create(0x4000);
  ASSERT_TRUE(memory);
  memory->StoreTable({{0x1'0000'0000, 0x4000}});
  std::vector<uint32_t> seen;
  FakeServer server([&](const wire::RequestHeader& request, const auto&) {
    if (request.bar == 2) {
      uint32_t words[2];
      std::memcpy(words, memory->bytes().data() + 0x100, sizeof words);
      seen.insert(seen.end(), {words[0], words[1]});
    }
    if (request.bar == 5) return Value4(1);
    return FakeServer::Reply{true, {0, 0x4000, 9}, {}, memory->fd()};
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kFinished) << driven.result.text;
  EXPECT_EQ(server.got().size(), 4u);
  EXPECT_THAT(seen, ElementsAre(0x11223344u, 0u, 0x11223344u, 0x55667788u));
}

// The proxy was late at the first doorbell and found the second one's packet and pointer in memory
// as well: they stand between the two.
TEST(Drive, SharedMemoryThatWasCopiedBeforeItsDoorbell) {
  constexpr uint32_t kRing = 0x1000'0000, kPointers = 0x1100'0000;
  Session session;
  session.MapFd(0, 0x10000, kRing);
  session.MapFd(1, 0x4000, kPointers);
  const amd::RegisterMap map = amd::RegisterMap::Assumed();
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, uint32_t>>{
           {"regSDMA0_QUEUE0_RB_WPTR", 0},
           {"regSDMA0_QUEUE0_RB_WPTR_HI", 0},
           {"regSDMA0_QUEUE0_RB_BASE", kRing >> 8},
           {"regSDMA0_QUEUE0_RB_BASE_HI", 0},
           {"regSDMA0_QUEUE0_RB_RPTR_ADDR_LO", kPointers + 0x80},
           {"regSDMA0_QUEUE0_RB_RPTR_ADDR_HI", 0},
           {"regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO", kPointers + 0x38},
           {"regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI", 0},
           {"regSDMA0_QUEUE0_DOORBELL_OFFSET", 512u << 2},
           {"regSDMA0_QUEUE0_RB_CNTL", 1u | 14u << 1}})
    session.Write4(5, *map.Find(name), value);
  const auto fence = [](uint32_t value) {
    auto packet = Le(0x00030005, 4);
    for (const uint32_t word : {kPointers + 0x3ff0, 0u, value})
      for (const uint8_t byte : Le(word, 4)) packet.push_back(byte);
    return packet;
  };
  session.Doorbell(0x10);
  session.Memory(0, 0, fence(1));
  session.Memory(1, 0x38, Le(0x10, 8));
  session.Memory(0, 0x10, fence(2));
  session.Memory(1, 0x38, Le(0x20, 8));
  session.Read4(5, 0x10, 1);
  session.Doorbell(0x20);
  auto ring = SharedMemory::Create(0x10000), pointers = SharedMemory::Create(0x4000);
  ASSERT_TRUE(ring && pointers);
  ring->StoreTable({{kRing, 0x10000}});
  pointers->StoreTable({{kPointers, 0x4000}});
  std::vector<uint32_t> seen;
  FakeServer server([&](const wire::RequestHeader& request, const std::vector<uint8_t>& payload) {
    if (request.bar == 2) {
      const size_t last = LoadLe<uint64_t>(payload.data()) - 4;  // the newest fence's value
      seen.push_back(LoadLe<uint32_t>(ring->bytes().data() + last));
    }
    if (request.command == static_cast<uint8_t>(wire::Command::kMapSysmemFd))
      return request.arg0 == 0x4000 ? FakeServer::Reply{true, {0, 0x4000, 1}, {}, pointers->fd()}
                                    : FakeServer::Reply{true, {0, 0x10000, 0}, {}, ring->fd()};
    return Value4(1);
  });
  const Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kFinished) << driven.result.text;
  EXPECT_EQ(server.got().size(), 15u);
  EXPECT_THAT(seen, ElementsAre(1u, 2u));
  EXPECT_EQ(LoadLe<uint64_t>(pointers->bytes().data() + 0x38), 0x20u);
}

TEST(Drive, OtherDmaAddresses) {
  Session session;
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Posted(MmioWrite(0, 0x2000, 8), Le(0x0060'0001'0000'1073, 8));
  auto memory = SharedMemory::Create(0x4000);
  ASSERT_TRUE(memory);
  memory->StoreTable({{0x5'0000'0000, 0x4000}});
  std::vector<uint8_t> entry;
  FakeServer server([&](const wire::RequestHeader&, const std::vector<uint8_t>& payload) {
    if (!payload.empty()) entry = payload;
    return FakeServer::Reply{true, {0, 0x4000, 0}, {}, memory->fd()};
  });
  Driven driven = Drive(session, server);
  EXPECT_EQ(driven.result.kind, Kind::kDiverged);
  EXPECT_THAT(driven.result.text, HasSubstr("other DMA addresses (0x500000000, recorded "
                                            "0x100000000)"));
  DriverOptions options = Fast();
  options.addresses = AddressPolicy::kRewrite;
  driven = Drive(session, server, options);
  EXPECT_EQ(driven.result.kind, Kind::kFinished) << driven.result.text;
  EXPECT_EQ(driven.counters.rewritten, 1u);
  EXPECT_EQ(server.got().size(), 3u);
  EXPECT_EQ(entry, Le(0x0060'0005'0000'1073, 8));
}

TEST(Drive, EachConnectionIsOneOfItsOwn) {
  Session session(false);
  session.Connect(1);
  session.Read4(5, 0, 1);
  session.Disconnect("client", 1);
  session.Connect(2);
  session.Read4(5, 4, 1);
  session.Disconnect("client", 2);
  FakeServer server([](const auto&, const auto&) { return Value4(1); });
  EXPECT_EQ(Drive(session, server).result.kind, Kind::kFinished);
  EXPECT_EQ(server.got().size(), 2u);
  EXPECT_EQ(server.connections(), 2);
}

}  // namespace
}  // namespace tg::replay
