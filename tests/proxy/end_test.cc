// How connections end: refusals, half-closes, deaths, nobody there, clients that wait.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/proxy/rig.h"
#include "tests/wire/hex.h"

namespace tg::proxy::test {
namespace {

using tg::test::Hex;
using tinygpu::trace::SessionEvent;
using wire::Command;

void Pause(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// B05 A: the driver extension is not there; the server says so to the first request and hangs up
// while the client pipelines writes.
void RefusingServer(const wire::Address& listen, const wire::Address& upstream) {
  TempDir dir;
  const std::string advice(90, 'x');
  StubServer server(upstream.is_unix() ? UnixAt(dir / "server.sock") : upstream,
                    [&](int fd, StubServer&) {
                      RecvAll(fd, 33);
                      (void)Send(fd, Reply(1, advice.size()) + Text(advice));
                    });
  ProxyRig::Options options;
  options.listen = listen.is_unix() ? UnixAt(dir / "proxy.sock") : listen;
  options.upstream = server.address();
  ProxyRig proxy(dir, std::move(options));
  {
    Client client(proxy.address());
    Bytes burst = Request(Command::kMapBar);
    for (int i = 0; i < 1000; i++) burst = std::move(burst) + Write(0, 8, Pattern(8));
    // Sending may fail midway, as it would without a proxy.
    std::thread sender([&] {
      for (size_t at = 0; at < burst.size(); at += 41)
        if (!client.Send(Bytes(burst.begin() + static_cast<long>(at),
                               burst.begin() + static_cast<long>(std::min(burst.size(), at + 41)))))
          return;
    });
    EXPECT_EQ(client.Recv(17 + advice.size()), Reply(1, advice.size()) + Text(advice));
    EXPECT_TRUE(client.AtEnd());
    sender.join();
  }
  EXPECT_TRUE(proxy.WaitLog("MAP_BAR 0 refused by server: " + advice));
  const Decoded trace = proxy.Finish();
  const auto ends = trace.Events(SessionEvent::DISCONNECT);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].text(), "server closed after error reply");
  EXPECT_EQ(ends[0].closed_first(), "server");
  ASSERT_FALSE(trace.calls.empty());
  EXPECT_EQ(trace.calls[0].reply.status, 1);
  EXPECT_EQ(trace.calls[0].body, Text(advice));
}

TEST(End, RefusalReachesThePipeliningClientUnix) {
  for (int i = 0; i < 10; i++) RefusingServer(UnixAt("x"), UnixAt("x"));
}

TEST(End, RefusalReachesThePipeliningClientTcp) {
  for (int i = 0; i < 10; i++) RefusingServer(TcpLocal(), TcpLocal());
}

TEST(End, RefusalWithoutTextIsNamedByUs) {  // B05 B
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    (void)Send(fd, Hex("0100000000000000000000000000000000"));
    (void)server.Next(fd);
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(
      client.Send(Hex("010000000001000000000000000000000000000000000000000000000000000000")));
  EXPECT_EQ(client.Recv(17), Hex("0100000000000000000000000000000000"));
  EXPECT_TRUE(chain.proxy->WaitLog("MAP_BAR 1 refused, no reason given"));
  client.Close();
  EXPECT_EQ(chain.proxy->Finish().calls.size(), 1u);
  EXPECT_EQ(chain.proxy->counters().errors, 1u);
}

TEST(End, HalfCloseStillGetsTheReply) {
  Chain chain([](int fd, StubServer& server) {
    (void)server.Next(fd);
    EXPECT_FALSE(server.Next(fd));  // the half-close came through
    Pause(50);
    (void)Send(fd, Reply(0, 7));
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  client.NoMoreRequests();
  EXPECT_EQ(client.Recv(17), Reply(0, 7));
  EXPECT_TRUE(client.AtEnd());
}

TEST(End, WholeRequestsOfADeadClientAreDelivered) {
  Chain chain;
  {
    Client client(chain.proxy->address());
    Bytes all;
    for (uint64_t i = 0; i < 500; i++) all = std::move(all) + Write(0, 8 * i, Pattern(8));
    ASSERT_TRUE(client.Send(all));
  }
  const Decoded trace = chain.proxy->Finish();
  EXPECT_TRUE(chain.server->WaitFor(500));
  EXPECT_EQ(trace.calls.size(), 500u);
}

TEST(End, ServerDyingInsideAReplyGivesTheClientWhatThereWas) {
  for (const size_t cut : {1u, 16u, 17u, 20u}) {
    const Bytes whole = Reply(0, 64) + Pattern(64);
    Chain chain([&](int fd, StubServer& server) {
      (void)server.Next(fd);
      (void)Send(fd, Bytes(whole.begin(), whole.begin() + static_cast<long>(cut)));
    });
    Client client(chain.proxy->address());
    ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 5, 0, 64)));
    EXPECT_EQ(client.Recv(whole.size()),
              Bytes(whole.begin(), whole.begin() + static_cast<long>(cut)));
    EXPECT_TRUE(client.AtEnd());
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    ASSERT_EQ(trace.calls.size(), 1u);
    EXPECT_EQ(trace.calls[0].answered, cut >= 17);
    EXPECT_EQ(trace.calls[0].body.size(), cut > 17 ? cut - 17 : 0u);
  }
}

TEST(End, ClientFailsAtOnceWhenTheServerIsGone) {
  Chain chain([](int fd, StubServer& server) { (void)server.Next(fd); });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kReset)));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(client.AtEnd());
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  // As without a proxy: the next send fails.
  EXPECT_TRUE(Eventually([&] { return !client.Send(Request(Command::kReset)); }));
}

TEST(End, NobodyUpstreamIsAClearError) {
  TempDir dir;
  ProxyRig::Options options;
  options.listen = UnixAt(dir / "proxy.sock");
  options.upstream = UnixAt(dir / "nobody.sock");
  options.proxy.connect.tries_alone = 3;
  ProxyRig proxy(dir, std::move(options));
  Client client(proxy.address());
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(proxy.WaitLog("no server at unix:" + (dir / "nobody.sock")));
  EXPECT_EQ(proxy.CountLog("give --upstream or --app"), 1);
  EXPECT_EQ(proxy.Finish().Events(SessionEvent::UPSTREAM_REFUSED).size(), 1u);
}

TEST(End, ServerThatComesLateIsWaitedFor) {
  TempDir dir;
  ProxyRig::Options options;
  options.listen = UnixAt(dir / "proxy.sock");
  options.upstream = UnixAt(dir / "server.sock");
  ProxyRig proxy(dir, std::move(options));
  Client client(proxy.address());
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_TRUE(proxy.WaitLog("trying again"));
  StubServer server(UnixAt(dir / "server.sock"));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  proxy.Stop();
}

TEST(End, AppIsStartedAsTheClientWould) {
  TempDir dir;
  const std::string app = dir / "app.sh", argument = dir / "arguments";
  {
    FILE* file = std::fopen(app.c_str(), "w");
    std::fprintf(file, "#!/bin/sh\necho \"$@\" > %s\n", argument.c_str());
    std::fclose(file);
    ::chmod(app.c_str(), 0700);
  }
  ProxyRig::Options options;
  options.listen = UnixAt(dir / "proxy.sock");
  options.upstream = UnixAt(dir / "server.sock");
  options.proxy.connect.app = app;
  ProxyRig proxy(dir, std::move(options));
  Client client(proxy.address());
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_TRUE(proxy.WaitLog("started " + app));
  EXPECT_TRUE(Eventually([&] { return ::access(argument.c_str(), R_OK) == 0; }));
  StubServer server(UnixAt(dir / "server.sock"));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  const Decoded trace = proxy.Finish();
  EXPECT_EQ(trace.Events(SessionEvent::APP_STARTED).size(), 1u);
  char line[512] = {};
  FILE* file = std::fopen(argument.c_str(), "r");
  EXPECT_NE(nullptr, std::fgets(line, sizeof line, file));
  std::fclose(file);
  EXPECT_EQ(std::string(line), "server " + (dir / "server.sock") + "\n");
}

TEST(End, SecondClientWaitsAndIsTold) {  // B14 a
  Chain chain;
  Client first(chain.proxy->address());
  ASSERT_TRUE(first.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(first.Recv(17), Reply(0, 0x744c1002));
  Client second(chain.proxy->address());
  ASSERT_TRUE(second.Send(Request(Command::kMapBar, 5)));
  const std::string pid = std::to_string(::getpid());
  EXPECT_TRUE(chain.proxy->WaitLog("client 2 (pid " + pid + ") is waiting for client 1 (pid " +
                                   pid + "), upstream serves one at a time"));
  Pause(50);
  EXPECT_EQ(chain.server->count(), 1u);
  first.Close();
  EXPECT_EQ(second.Recv(17), Reply(0, 0x7f0000100000, 0x100000));
  second.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(trace.Events(SessionEvent::WAITING).size(), 1u);
  EXPECT_EQ(trace.Events(SessionEvent::CONNECT).size(), 2u);
  EXPECT_EQ(trace.Events(SessionEvent::DISCONNECT).size(), 2u);
}

TEST(End, WaitingClientThatLeavesIsPassedOver) {
  Chain chain;
  Client first(chain.proxy->address());
  ASSERT_TRUE(first.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(first.Recv(17), Reply(0, 0x744c1002));
  { Client second(chain.proxy->address()); }
  Client third(chain.proxy->address());
  ASSERT_TRUE(third.Send(Request(Command::kCfgRead, 0, 0, 4)));
  ASSERT_TRUE(chain.proxy->WaitLog("client 3"));
  first.Close();
  EXPECT_EQ(third.Recv(17), Reply(0, 0x744c1002));
  third.Close();
  (void)chain.proxy->Finish();
  EXPECT_EQ(chain.server->connections(), 2);
  EXPECT_EQ(chain.proxy->CountLog("left before it was served"), 1);
}

TEST(End, HeldUpstreamStaysUntilTheNextClient) {  // T1
  std::atomic<int> closed{0};
  Chain chain(
      [&](int fd, StubServer& server) {
        server.AppRules(fd);
        closed++;
      },
      {.hold_upstream = true});
  {
    Client first(chain.proxy->address());
    ASSERT_TRUE(first.Send(Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(first.Recv(17), Reply(0, 0x744c1002));
  }
  EXPECT_TRUE(chain.proxy->WaitLog("connection is held"));
  Pause(200);
  EXPECT_EQ(closed, 0);
  Client second(chain.proxy->address());
  ASSERT_TRUE(second.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(second.Recv(17), Reply(0, 0x744c1002));
  EXPECT_EQ(closed, 1);
  second.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(trace.Events(SessionEvent::DISCONNECT).size(), 2u);
}

TEST(End, UpstreamIsClosedWithTheClientByDefault) {
  std::atomic<int> closed{0};
  Chain chain([&](int fd, StubServer& server) {
    server.AppRules(fd);
    closed++;
  });
  {
    Client first(chain.proxy->address());
    ASSERT_TRUE(first.Send(Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(first.Recv(17), Reply(0, 0x744c1002));
  }
  EXPECT_TRUE(Eventually([&] { return closed == 1; }));
}

TEST(End, StopInTheMiddleLeavesACleanTrace) {
  Chain chain([](int fd, StubServer& server) {
    while (server.Next(fd)) {
    }
  });
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kReset)));
  ASSERT_TRUE(chain.server->WaitFor(1));
  chain.proxy->Stop();
  EXPECT_TRUE(client.AtEnd());
  const Decoded trace = Decode(chain.proxy->trace_path());
  EXPECT_EQ(trace.end_state, trace::EndState::kClean);
  ASSERT_NE(trace.End(), nullptr);
  EXPECT_EQ(trace.End()->reason(), "signal");
  const auto ends = trace.Events(SessionEvent::DISCONNECT);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].closed_first(), "proxy");
  EXPECT_EQ(ends[0].unanswered(), 1u);
}

TEST(End, BytesAreExactOverTcp) {
  TempDir dir;
  StubServer server(TcpLocal(), [](int fd, StubServer&) {
    // serve.py's way: headers by MSG_WAITALL.
    for (;;) {
      const Bytes header = RecvAll(fd, 33);
      if (header.size() < 33) return;
      const auto request = wire::DecodeRequest(header);
      if (request.command == 10) RecvAll(fd, request.arg1);
      if (request.command == 9) (void)Send(fd, Reply(0, request.arg1) + Pattern(request.arg1, 2));
      if (request.command == 12) (void)Send(fd, Reply(0));
    }
  });
  ProxyRig::Options options;
  options.listen = TcpLocal();
  options.upstream = server.address();
  ProxyRig proxy(dir, std::move(options));
  Client client(proxy.address());
  for (const size_t size : {4u, 5000u, 3u << 20}) {
    ASSERT_TRUE(client.Send(Request(Command::kSysmemWrite, 3, 0, size) + Pattern(size)));
    ASSERT_TRUE(client.Send(Request(Command::kSysmemRead, 3, 0, size)));
    EXPECT_EQ(client.Recv(17 + size), Reply(0, size) + Pattern(size, 2));
  }
  ASSERT_TRUE(client.Send(Request(Command::kPing)));
  EXPECT_EQ(client.Recv(17), Reply(0));
  client.Close();
  const Decoded trace = proxy.Finish();
  EXPECT_EQ(trace.calls.size(), 7u);
  EXPECT_EQ(trace.Events(SessionEvent::CONNECT)[0].transport(), "tcp");
}

}  // namespace
}  // namespace tg::proxy::test
