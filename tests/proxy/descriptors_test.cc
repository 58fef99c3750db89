// Descriptors and the shared memory behind them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "schemas/wire/bytes.h"
#include "tests/proxy/rig.h"
#include "tests/wire/hex.h"

namespace tg::proxy::test {
namespace {

using tg::test::Hex;
using tinygpu::trace::SessionEvent;
using wire::Command;

// Field report B01.
const Bytes kMap16K = Hex("020000000000000000004000000000000000000000000000000000000000000000");
const Bytes kMapOk = Hex("0000400000000000000000000000000000");

bool SameFile(int a, int b) {
  struct stat sa {
  }, sb{};
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

void CloseAll(const std::vector<int>& fds) {
  for (const int fd : fds) ::close(fd);
}

TEST(Descriptors, RefusalHasTextAndNoDescriptor) {  // B01
  const Bytes refusal =
      Hex("0114000000000000000000000000000000"
          "4e6f2066726565207379736d656d20736c6f7473");
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, refusal);
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  const Received first = client.RecvOnce(17);
  EXPECT_TRUE(first.fds.empty());
  EXPECT_EQ(first.bytes + client.Recv(20), refusal);
  EXPECT_TRUE(
      chain.proxy->WaitLog("MAP_SYSMEM_FD refused by server: No free sysmem slots; expect "
                           "the client to fail with IndexError"));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].header.arg0, 0x4000u);
  EXPECT_EQ(trace.calls[0].reply.status, 1);
  EXPECT_EQ(trace.calls[0].body, Text("No free sysmem slots"));
  EXPECT_EQ(chain.proxy->counters().errors, 1u);
  EXPECT_EQ(chain.proxy->CountLog("errors=1"), 1);
}

TEST(Descriptors, GrantArrivesInOneReceive) {  // B01, second case
  const int file = SharedFile(0x4000);
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, kMapOk, {file});
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  const Received got = client.RecvOnce(17);
  EXPECT_EQ(got.bytes, kMapOk);
  ASSERT_EQ(got.fds.size(), 1u);
  EXPECT_TRUE(SameFile(got.fds[0], file));
  CloseAll(got.fds);
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(trace.calls.at(0).descriptors, 1u);
  ::close(file);
}

TEST(Descriptors, SplitReplyIsPutTogether) {  // B12, first case
  for (const bool on_first_part : {true, false}) {
    for (size_t cut = 1; cut < 17; cut++) {
      const int file = SharedFile(0x4000);
      Chain chain([&](int fd, StubServer& server) {
        (void)server.Next(fd);
        const auto middle = kMapOk.begin() + static_cast<long>(cut);
        const std::vector<int> fds = {file};
        (void)Send(fd, Bytes(kMapOk.begin(), middle), on_first_part ? fds : std::vector<int>());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        (void)Send(fd, Bytes(middle, kMapOk.end()), on_first_part ? std::vector<int>() : fds);
        (void)server.Next(fd);
      });
      Client client(chain.proxy->address());
      ASSERT_TRUE(client.Send(kMap16K));
      const Received got = client.RecvOnce(17);
      EXPECT_EQ(got.bytes, kMapOk) << cut;
      EXPECT_EQ(got.fds.size(), 1u) << cut;
      CloseAll(got.fds);
      ::close(file);
    }
  }
}

TEST(Descriptors, TwoOnOneReplyBothArrive) {  // B12, second case
  const int before = OpenDescriptors();
  {
    const int one = SharedFile(0x4000), two = SharedFile(0x8000);
    Chain chain([&](int fd, StubServer& server) {
      (void)server.Next(fd);
      (void)Send(fd, kMapOk, {one, two});
      (void)server.Next(fd);
    });
    Client client(chain.proxy->address());
    ASSERT_TRUE(client.Send(kMap16K));
    const Received got = client.RecvOnce(17);
    EXPECT_EQ(got.bytes, kMapOk);
    ASSERT_EQ(got.fds.size(), 2u);
    EXPECT_TRUE(SameFile(got.fds[0], one));
    EXPECT_TRUE(SameFile(got.fds[1], two));
    CloseAll(got.fds);
    CloseAll({one, two});
    client.Close();
    EXPECT_EQ(chain.proxy->Finish().calls.at(0).descriptors, 2u);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Descriptors, GrantWithoutDescriptorPassesAndIsSaid) {
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, kMapOk);
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  const Received got = client.RecvOnce(17);
  EXPECT_EQ(got.bytes, kMapOk);
  EXPECT_TRUE(got.fds.empty());
  EXPECT_TRUE(chain.proxy->WaitLog("granted without a descriptor"));
}

TEST(Descriptors, UnexpectedOneIsPassedOn) {
  const int file = SharedFile(10);
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)server.Next(fd);
    // Two answers in one go; the descriptor is on the second.
    (void)Send(fd, Reply(0, 1));
    (void)Send(fd, Reply(0, 2), {file});
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  const Bytes read = Request(Command::kCfgRead, 0, 0, 4);
  ASSERT_TRUE(client.Send(read + read));
  const Received one = client.RecvOnce(17), two = client.RecvOnce(17);
  EXPECT_EQ(one.bytes, Reply(0, 1));
  EXPECT_TRUE(one.fds.empty());
  EXPECT_EQ(two.bytes, Reply(0, 2));
  ASSERT_EQ(two.fds.size(), 1u);
  EXPECT_TRUE(SameFile(two.fds[0], file));
  CloseAll(two.fds);
  EXPECT_TRUE(chain.proxy->WaitLog("which has none; passed on"));
  ::close(file);
}

TEST(Descriptors, PassWithUnknownCommandsInBothDirections) {
  const int file = SharedFile(10), back = SharedFile(20);
  const Bytes unknown = Hex("c8") + Pattern(32);
  Chain chain([&](int fd, StubServer&) {
    const Received got = RecvOnce(fd, 33);
    EXPECT_EQ(got.bytes, unknown);
    ASSERT_EQ(got.fds.size(), 1u);
    EXPECT_TRUE(SameFile(got.fds[0], file));
    CloseAll(got.fds);
    // Bytes without, then bytes with a descriptor: it stays at its byte.
    (void)Send(fd, Pattern(100, 3));
    (void)Send(fd, Pattern(50, 4), {back});
    (void)Send(fd, Pattern(25, 5));
    RecvAll(fd, 1);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(unknown, {file}));
  Received got;
  got.bytes = client.Recv(100);
  EXPECT_EQ(got.bytes, Pattern(100, 3));
  got = client.RecvOnce(50);
  EXPECT_EQ(got.bytes, Pattern(50, 4));
  ASSERT_EQ(got.fds.size(), 1u);
  EXPECT_TRUE(SameFile(got.fds[0], back));
  EXPECT_EQ(client.Recv(25), Pattern(25, 5));
  CloseAll(got.fds);
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  uint32_t to_server = 0, to_client = 0;
  for (const auto& raw : trace.Raws())
    (raw.from_server() ? to_client : to_server) += raw.descriptors();
  EXPECT_EQ(to_server, 1u);
  EXPECT_EQ(to_client, 1u);
  CloseAll({file, back});
}

// In a stream without frames a descriptor's byte is found even when all was read in one go.
TEST(Descriptors, KeepTheirByteInRawStreams) {
  const int file = SharedFile(10);
  std::atomic<bool> sent{false};
  Chain chain([&](int fd, StubServer&) {
    RecvAll(fd, 33);
    for (int i = 0; i < 20; i++) {
      (void)Send(fd, Pattern(static_cast<size_t>(10 + i), 1));
      (void)Send(fd, Pattern(7, 2), {file});
    }
    sent = true;
    RecvAll(fd, 1);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Hex("c8 00*32")));
  ASSERT_TRUE(Eventually([&] { return sent.load(); }));
  for (int i = 0; i < 20; i++) {
    // A receive never reaches past a descriptor, so this one has none if it stayed in place.
    const size_t plain = static_cast<size_t>(10 + i);
    Bytes bytes;
    while (bytes.size() < plain) {
      const Received part = client.RecvOnce(plain - bytes.size());
      ASSERT_FALSE(part.bytes.empty());
      EXPECT_TRUE(part.fds.empty());
      bytes = std::move(bytes) + part.bytes;
    }
    EXPECT_EQ(bytes, Pattern(plain, 1));
    const Received with = client.RecvOnce(7);
    EXPECT_EQ(with.bytes, Pattern(7, 2));
    ASSERT_EQ(with.fds.size(), 1u);
    CloseAll(with.fds);
  }
  ::close(file);
}

TEST(Descriptors, RegionCapIsCountedAndSaid) {  // B02
  Chain chain;
  Client client(chain.proxy->address());
  const Bytes map = Hex("020000000000000000001000000000000000000000000000000000000000000000");
  for (uint64_t i = 0; i < 128; i++) {
    ASSERT_TRUE(client.Send(map));
    const Received got = client.RecvOnce(17);
    ASSERT_EQ(got.bytes, Reply(0, 0x4000, i));
    ASSERT_EQ(got.fds.size(), 1u);
    CloseAll(got.fds);
  }
  ASSERT_TRUE(client.Send(map));
  const Received refused = client.RecvOnce(17);
  EXPECT_EQ(refused.bytes, Reply(1));
  EXPECT_TRUE(refused.fds.empty());
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.proxy->CountLog("sysmem: 112 regions"), 1);
  EXPECT_EQ(
      chain.proxy->CountLog("sysmem: 128 regions, 2097152 bytes granted (524288 asked): 128 is "
                            "the server's fixed cap; nothing is freed before disconnect"),
      1);
  EXPECT_EQ(chain.proxy->CountLog("MAP_SYSMEM_FD refused by server: no reason given"), 1);
  const auto regions = trace.Regions();
  ASSERT_EQ(regions.size(), 128u);
  for (int i = 0; i < 128; i++) {
    const auto& region = regions[static_cast<size_t>(i)];
    EXPECT_EQ(region.index(), static_cast<uint32_t>(i));
    EXPECT_EQ(region.asked(), 0x1000u);
    EXPECT_EQ(region.granted(), 0x4000u);
    EXPECT_EQ(region.mapped(), 0x4000u);
    ASSERT_EQ(region.address_size(), 1);
    EXPECT_EQ(region.address(0), 0x100000000u + 0x100000u * static_cast<uint64_t>(i));
    EXPECT_EQ(region.length(0), 0x4000u);
  }
}

// B12, third case: 10,000 regions in 100 sessions leave no descriptor behind.
TEST(Descriptors, CountStaysFlatOverSessions) {
  const bool soak = std::getenv("TINYGPU_SOAK") != nullptr;
  const int sessions = soak ? 10000 : 60;
  const int maps = soak ? 1 : 20;
  TempDir dir;
  auto server = std::make_unique<StubServer>(UnixAt(dir / "server.sock"));
  ProxyRig::Options options;
  options.listen = UnixAt(dir / "proxy.sock");
  options.upstream = server->address();
  ProxyRig proxy(dir, std::move(options));
  int flat = 0;
  for (int s = 0; s < sessions; s++) {
    {
      Client client(proxy.address());
      for (int i = 0; i < maps; i++) {
        ASSERT_TRUE(client.Send(kMap16K));
        const Received got = client.RecvOnce(17);
        ASSERT_EQ(got.fds.size(), 1u);
        CloseAll(got.fds);
      }
    }
    ASSERT_TRUE(proxy.WaitLog("client " + std::to_string(s + 1) + " done"));
    if (s == 1) flat = OpenDescriptors();
  }
  // The connection of the last session may still be closing at the server.
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= flat; }))
      << OpenDescriptors() << " open, " << flat << " after two sessions";
  EXPECT_EQ(proxy.counters().descriptors, 0u);  // read after Stop() only
  proxy.Stop();
  EXPECT_EQ(proxy.counters().descriptors, static_cast<uint64_t>(sessions * maps));
}

// MSG_CTRUNC: at the limit of open files the kernel drops descriptors; bytes pass, it is recorded.
TEST(Descriptors, AtTheLimitOfOpenFilesBytesStillPass) {
  std::atomic<bool> limited{false};
  const int file = SharedFile(0x4000);
  Chain chain([&](int fd, StubServer& server) {
    while (server.Next(fd)) {
      while (!limited) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)Send(fd, kMapOk, {file});
    }
  });
  Client client(chain.proxy->address());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(client.Send(kMap16K));
  ASSERT_TRUE(chain.server->WaitFor(1));
  // No descriptor number is left below this limit.
  rlimit low = before;
  low.rlim_cur = 3;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &low));
  limited = true;
  const Bytes got = client.Recv(17);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(got, kMapOk);
  EXPECT_TRUE(chain.proxy->WaitLog("MSG_CTRUNC"));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_TRUE(trace.calls[0].control_truncated);
  EXPECT_EQ(trace.calls[0].descriptors, 0u);
  ::close(file);
}

TEST(Sysmem, SmallRegionsAreStoredAtTheEndAndOnlyWhatChanged) {
  int file = -1;
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    Bytes table(32);
    StoreLe<uint64_t>(&table[0], 0x12340000);
    StoreLe<uint64_t>(&table[8], 0x4000);
    file = SharedFile(0x4000, table);
    (void)Send(fd, kMapOk, {file});
    while (server.Next(fd)) {
    }
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  const Received got = client.RecvOnce(17);
  ASSERT_EQ(got.fds.size(), 1u);
  const Bytes words = Pattern(64, 77);
  ASSERT_EQ(64, ::pwrite(got.fds[0], words.data(), words.size(), 0x2000));
  chain.proxy->Snapshot();
  ASSERT_TRUE(Eventually([&] {
    const Decoded now = Decode(chain.proxy->trace_path());
    int found = 0;
    for (const auto& packet : now.packets) found += packet.has_sysmem();
    return found == 4;  // table page, zero page, changed page, zero page
  }));
  const Bytes other = Pattern(16, 78);
  ASSERT_EQ(16, ::pwrite(got.fds[0], other.data(), other.size(), 0x3ff0));
  CloseAll(got.fds);
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  std::vector<tinygpu::trace::SysmemData> data;
  for (const auto& packet : trace.packets)
    if (packet.has_sysmem()) data.push_back(packet.sysmem());
  ASSERT_EQ(data.size(), 5u);
  EXPECT_EQ(data[0].offset(), 0u);
  EXPECT_EQ(data[0].data().size(), 4096u);
  EXPECT_TRUE(data[1].zeros());
  EXPECT_EQ(data[1].size(), 4096u);
  EXPECT_EQ(data[2].offset(), 0x2000u);
  EXPECT_EQ(Text(data[2].data().substr(0, 64)), words);
  EXPECT_EQ(data[2].why(), tinygpu::trace::SysmemData::SIGNAL);
  EXPECT_EQ(data[4].offset(), 0x3000u);
  EXPECT_EQ(data[4].why(), tinygpu::trace::SysmemData::END);
  EXPECT_EQ(Text(data[4].data().substr(0xff0)), other);
  ::close(file);
}

// Somebody cuts the object short behind our mapping: a plain reader would die of SIGBUS.
TEST(Sysmem, TruncatedRegionDoesNoHarm) {
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    const int file = SharedFile(0x4000, Pattern(16));
    (void)Send(fd, kMapOk, {file});
    (void)server.Next(fd);
    EXPECT_EQ(0, ::ftruncate(file, 0));
    ::close(file);
    (void)Send(fd, Reply(0, 1));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  CloseAll(client.RecvOnce(17).fds);
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(client.Recv(17), Reply(0, 1));
  chain.proxy->Snapshot();
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(trace.end_state, trace::EndState::kClean);
  ASSERT_EQ(trace.Regions().size(), 1u);
}

TEST(Sysmem, ObjectShorterThanGrantedIsSaid) {
  Chain chain([&](int fd, StubServer& server) {
    (void)server.Next(fd);
    const int file = SharedFile(0x1000);
    (void)Send(fd, Reply(0, 1ull << 40, 5), {file});
    ::close(file);
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(kMap16K));
  CloseAll(client.RecvOnce(17).fds);
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  ASSERT_EQ(trace.Regions().size(), 1u);
  EXPECT_EQ(trace.Regions()[0].mapped(), 0x1000u);
  EXPECT_EQ(trace.Regions()[0].problem(),
            "the object is shorter than the server said: 4096 of 1099511627776 bytes");
}

TEST(Sysmem, CopierStopsWhereTheMemoryEnds) {
  SafeCopier copier;
  ASSERT_TRUE(copier.ok());
  const Bytes source = Pattern(300000);
  Bytes copy(source.size());
  EXPECT_EQ(copier.Copy(source.data(), copy), source.size());
  EXPECT_EQ(copy, source);
  EXPECT_EQ(copier.Copy(nullptr, copy), 0u);
}

}  // namespace
}  // namespace tg::proxy::test
