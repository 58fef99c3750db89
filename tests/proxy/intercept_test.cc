// Guard, fault injection and autopsy on the wire: what the client gets, what the server sees, what
// the trace keeps and what rpcdecode makes of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "proxy/rules/policy.h"
#include "schemas/wire/bytes.h"
#include "tests/proxy/rig.h"

#ifndef RPCDECODE
#define RPCDECODE "rpcdecode"  // CMake knows where it is; a mere compile check does not
#endif

namespace tg::proxy::test {
namespace {

using nlohmann::json;
using tinygpu::trace::SessionEvent;
using wire::Command;

constexpr uint64_t kScratch7 = (0xA000 + 0x2047) * 4;  // gc 11.0.0, base 1

SessionOptions With(RuleOptions rules) {
  SessionOptions options;
  auto made = MakeRuleSet(rules);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (made) options.rules = *made;
  return options;
}
SessionOptions ReadOnly() {
  RuleOptions rules;
  rules.read_only = true;
  return With(rules);
}
SessionOptions Inject(std::vector<std::string> list) {
  RuleOptions rules;
  rules.inject = std::move(list);
  return With(rules);
}

bool Writes(const ServedRequest& request) {
  const auto command = static_cast<Command>(request.header.command);
  return command == Command::kReset || command == Command::kCfgWrite ||
         command == Command::kResizeBar || command == Command::kMmioWrite ||
         command == Command::kSysmemWrite || request.header.command >= wire::kCommandCount;
}

json Report(const std::string& trace) {
  const std::string out = trace + ".json";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int fd = ::open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ::dup2(fd, 1);
    ::execlp(RPCDECODE, RPCDECODE, trace.c_str(), "--format", "json", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::ifstream in(out);
  return json::parse(in, nullptr, false);
}

// The entry of the report's section on the proxy that names `text`.
json EntryOf(const std::string& trace, const std::string& text) {
  const json report = Report(trace);
  for (const json& entry : report["proxy"]["entries"])
    if (entry["text"].get<std::string>().find(text) != std::string::npos) return entry;
  ADD_FAILURE() << "no entry for " << text << " in " << report["proxy"].dump(1);
  return nullptr;
}

// What the trace says of a call.
struct Marks {
  std::string refused, injected, answer_injected;
};
Marks MarksOf(const std::string& path, uint64_t call) {
  Marks marks;
  auto reader = trace::TraceReader::Open(path);
  trace::Record record;
  while ((*reader)->Next(record)) {
    if (record.call != call) continue;
    if (record.kind == trace::Record::Kind::kRequest) {
      marks.refused = record.request.refused;
      marks.injected = record.request.injected;
    }
    if (record.kind == trace::Record::Kind::kReply) marks.answer_injected = record.reply.injected;
  }
  return marks;
}

// ---- guard -----------------------------------------------------------------------------------

TEST(GuardOnTheWire, ReadOnlyAnswersAsAServerRefuses) {
  Chain chain({}, ReadOnly());
  Client client(chain.proxy->address());
  const std::string text = "rpcproxy --read-only: RESET is not passed on";
  ASSERT_TRUE(client.Send(Request(Command::kReset)));
  EXPECT_EQ(client.Recv(17 + text.size()), Reply(1, text.size()) + Text(text));
  // Posted writes are dropped, also large ones that come in pieces; the stream stays in step.
  ASSERT_TRUE(client.Send(Write(2, 0x800, Pattern(8)) + Write(0, 0, Pattern(3 << 20)) +
                          Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 5, 0x40, 4)));
  EXPECT_EQ(client.Recv(21), Reply(0, 4) + Pattern(4, 0x40));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  const auto served = chain.server->requests();
  ASSERT_EQ(served.size(), 2u);
  EXPECT_EQ(served[0].header.command, static_cast<uint8_t>(Command::kCfgRead));
  EXPECT_EQ(served[1].header.command, static_cast<uint8_t>(Command::kMmioRead));
  EXPECT_EQ(chain.server->short_headers(), 0);

  ASSERT_EQ(trace.calls.size(), 5u);
  EXPECT_EQ(trace.lost_calls, 0u);
  EXPECT_EQ(trace.calls[2].payload_size, 3u << 20);
  const std::string& path = chain.proxy->trace_path();
  EXPECT_EQ(MarksOf(path, 1).refused, "--read-only");
  EXPECT_EQ(MarksOf(path, 1).injected, "");
  EXPECT_EQ(MarksOf(path, 1).answer_injected, "--read-only");
  EXPECT_EQ(MarksOf(path, 2).refused, "--read-only");
  EXPECT_EQ(MarksOf(path, 4).refused, "");
  EXPECT_TRUE(chain.proxy->WaitLog("RESET refused: --read-only"));
  EXPECT_TRUE(chain.proxy->WaitLog("MMIO_WRITE bar2+0x800 dropped: --read-only"));
  const json report = Report(path);
  EXPECT_EQ(report["proxy"]["guarded"], 3);
  EXPECT_EQ(report["session"]["doorbells"], 0);
  EXPECT_EQ(report["session"]["unanswered_total"], 0);
}

// A refusal goes out in its request's turn, between the answers of the server.
TEST(GuardOnTheWire, RefusalsKeepTheirPlace) {
  Chain chain(
      [](int fd, StubServer& server) {
        // Answers late: all four requests that it sees are there before the first reply.
        std::vector<ServedRequest> got;
        while (got.size() < 4) {
          auto request = server.Next(fd);
          if (!request) return;
          got.push_back(*request);
        }
        for (const ServedRequest& request : got)
          Send(fd, Reply(0, 4) + Pattern(4, static_cast<uint32_t>(request.header.arg0)));
        server.Next(fd);
      },
      ReadOnly());
  Client client(chain.proxy->address());
  Bytes all, wanted;
  const auto refusal = [](const char* command) {
    const std::string text = std::string("rpcproxy --read-only: ") + command + " is not passed on";
    return Reply(1, text.size()) + Text(text);
  };
  for (uint64_t i = 0; i < 4; i++) {
    all = all + Request(Command::kMmioRead, 5, i * 4, 4) + Request(Command::kReset) +
          Write(2, 0, Pattern(8)) + Request(Command::kResizeBar);
    wanted = wanted + Reply(0, 4) + Pattern(4, static_cast<uint32_t>(i * 4)) + refusal("RESET") +
             refusal("RESIZE_BAR");
  }
  ASSERT_TRUE(client.Send(all));
  EXPECT_EQ(client.Recv(wanted.size()), wanted);
}

// Bytes of any kind, in any pieces: nothing that writes reaches the server, and it never sees a
// header out of step.
TEST(GuardOnTheWire, NoWritePassesFromAFuzzedClient) {
  const char* long_run = std::getenv("TINYGPU_FUZZ_CLIENTS");
  const int clients = long_run ? std::atoi(long_run) : 150;
  Chain chain(
      [](int fd, StubServer& server) {  // TinyGPU.app's rules, with small answers
        while (const auto request = server.Next(fd)) {
          const wire::RequestHeader& h = request->header;
          const wire::CommandInfo* info = wire::FindCommand(h.command);
          if (info && !info->reply) continue;
          const bool read = h.command == static_cast<uint8_t>(Command::kMmioRead);
          const Bytes reply = read && h.arg1 < 4096 ? Reply(0, h.arg1) + Pattern(h.arg1) : Reply(1);
          if (!Send(fd, reply)) return;
        }
      },
      ReadOnly());
  chain.server->keep_payloads = false;
  std::mt19937_64 random(88);
  for (int i = 0; i < clients; i++) {
    Client client(chain.proxy->address());
    const int style = static_cast<int>(random() % 4);
    for (int message = 0; message < 40; message++) {
      Bytes bytes;
      if (style == 0) {  // noise
        bytes.resize(1 + random() % 120);
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      } else {
        // Headers of every command, also unknown ones, mostly with sizes that can be.
        const auto command = static_cast<Command>(random() % (style == 1 ? 14 : 13));
        const uint64_t size = random() % 20 == 0 ? random() : random() % 300;
        bytes = Request(command, static_cast<uint32_t>(random() % 8),
                        random() % 3 ? random() % 4096 : random(), size, random(),
                        random() % 5 ? 0 : static_cast<uint32_t>(random()));
        const wire::CommandInfo* info = wire::FindCommand(static_cast<uint8_t>(command));
        if (info && info->payload && size < 1000) {
          Bytes payload(size);
          // What a server that does not take the payload would read as a request.
          for (size_t at = 0; at < payload.size(); at++)
            payload[at] = at % 33 == 0 ? 7 : static_cast<uint8_t>(random() % 3);
          bytes = std::move(bytes) + payload;
        }
        if (style == 3 && random() % 8 == 0) bytes.resize(1 + random() % bytes.size());
      }
      // In one piece or in two.
      const size_t cut = random() % 3 ? bytes.size() : random() % bytes.size();
      if (cut > 0 &&
          !client.Send(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(cut))))
        break;
      if (cut < bytes.size() &&
          !client.Send(Bytes(bytes.begin() + static_cast<ptrdiff_t>(cut), bytes.end())))
        break;
    }
    // One after the other: the proxy turns away those that would wait behind too many.
    client.NoMoreRequests();
    while (!client.RecvOnce(1 << 16).bytes.empty()) {
    }
  }
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.proxy->CountLog("turned away"), 0);
  EXPECT_GT(chain.server->count(), static_cast<size_t>(clients) * 3);
  for (const ServedRequest& request : chain.server->requests())
    ASSERT_FALSE(Writes(request)) << static_cast<int>(request.header.command);
  EXPECT_EQ(chain.server->short_headers(), 0);
}

TEST(GuardOnTheWire, UnknownCommandsAndOldFramesEndTheConnection) {
  for (const bool old : {false, true}) {
    Chain chain({}, ReadOnly());
    Client client(chain.proxy->address());
    Bytes bytes = Request(static_cast<Command>(200)) + Write(2, 0x800, Pattern(8));
    if (old) {
      const auto r1 = wire::EncodeRequestR1({1, 0, 0, 0, 0, 0});
      bytes.assign(r1.begin(), r1.end());
    }
    ASSERT_TRUE(client.Send(bytes));
    EXPECT_TRUE(client.AtEnd());
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    EXPECT_EQ(chain.server->count(), 0u);
    const auto ends = trace.Events(SessionEvent::DISCONNECT);
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].closed_first(), "proxy");
    EXPECT_NE(ends[0].text().find("--read-only"), std::string::npos) << ends[0].text();
  }
}

TEST(GuardOnTheWire, DenyByBarRangeAndName) {
  RuleOptions rules;
  rules.deny = {"MMIO_WRITE:bar=2;MMIO_*:bar=5:reg=0x100-0x1ff", "MMIO_WRITE:reg=SCRATCH_REG7"};
  rules.asic = "navi31";
  Chain chain({}, With(rules));
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Write(2, 0x800, Pattern(8)) + Write(5, 0x100, Pattern(4)) +
                          Write(5, kScratch7, Pattern(4)) + Write(5, 0x200, Pattern(4)) +
                          Request(Command::kMmioRead, 5, 0x1fc, 4)));
  const std::string text =
      "rpcproxy --deny MMIO_*:bar=5:reg=0x100-0x1ff: MMIO_READ is not passed on";
  EXPECT_EQ(client.Recv(17 + text.size()), Reply(1, text.size()) + Text(text));
  client.Close();
  chain.proxy->Finish();
  const auto served = chain.server->requests();
  ASSERT_EQ(served.size(), 1u);
  EXPECT_EQ(served[0].header.arg0, 0x200u);
  EXPECT_EQ(EntryOf(chain.proxy->trace_path(), "reg=SCRATCH_REG7")["kind"], "guard");
}

TEST(GuardOnTheWire, EveryRefusalIsInTheLogOneByOneOrCounted) {
  Chain chain({}, ReadOnly());
  Client client(chain.proxy->address());
  Bytes all;
  for (uint32_t i = 0; i < 2000; i++) all = std::move(all) + Write(0, 8 * i, Pattern(8, i));
  ASSERT_TRUE(client.Send(all + Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(trace.calls.size(), 2001u);
  EXPECT_EQ(chain.proxy->CountLog(" dropped: --read-only"), 5);
  EXPECT_EQ(chain.proxy->CountLog("2000 in all"), 1) << chain.proxy->log();
}

// ---- injection -------------------------------------------------------------------------------

TEST(InjectOnTheWire, Value) {
  Chain chain({}, Inject({"MMIO_READ:bar=5:when=2..3:value=0xffffffff", "CFG_READ:value=0x12345678",
                          "MMIO_READ:bar=0:value=0x1122334455667788"}));
  Client client(chain.proxy->address());
  const auto read = [&](uint32_t bar, uint64_t size) {
    EXPECT_TRUE(client.Send(Request(Command::kMmioRead, bar, 0x40, size)));
    return client.Recv(17 + size);
  };
  EXPECT_EQ(read(5, 4), Reply(0, 4) + Pattern(4, 0x40));
  EXPECT_EQ(read(5, 4), Reply(0, 4) + Bytes(4, 0xff));
  EXPECT_EQ(read(5, 10), Reply(0, 10) + Bytes(10, 0xff));
  EXPECT_EQ(read(5, 4), Reply(0, 4) + Pattern(4, 0x40));
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 2)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x5678));
  // A body that comes in many pieces.
  const Bytes large = read(0, 300'001);
  ASSERT_EQ(large.size(), 300'018u);
  for (size_t i = 0; i < 300'001; i++)
    ASSERT_EQ(large[17 + i], (0x1122334455667788ull >> (8 * (i % 8))) & 0xff) << i;
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 6u) << "the server was asked each time";
  ASSERT_EQ(trace.calls.size(), 6u);
  EXPECT_EQ(trace.calls[1].body, Bytes(4, 0xff)) << "the trace holds what the client got";
  const std::string& path = chain.proxy->trace_path();
  const uint32_t real = LoadLe<uint32_t>(Pattern(4, 0x40).data());
  std::ostringstream said;
  said << "--inject MMIO_READ:bar=5:when=2..3:value=0xffffffff; the server said 0x" << std::hex
       << real;
  EXPECT_EQ(MarksOf(path, 2).answer_injected, said.str());
  EXPECT_EQ(MarksOf(path, 1).answer_injected, "");
  EXPECT_EQ(MarksOf(path, 5).answer_injected,
            "--inject CFG_READ:value=0x12345678; the server said 0x744c1002");
  EXPECT_EQ(EntryOf(path, "when=2..3:value=0xffffffff")["kind"], "inject");
  EXPECT_EQ(EntryOf(path, "CFG_READ:value")["detail"], "the server said 0x744c1002");
}

TEST(InjectOnTheWire, Error) {
  Chain chain({}, Inject({"MAP_BAR:bar=2:error=no such: bar"}));
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kMapBar, 1)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x7f0000100000, 0x100000));
  ASSERT_TRUE(client.Send(Request(Command::kMapBar, 2)));
  EXPECT_EQ(client.Recv(29), Reply(1, 12) + Text("no such: bar"));
  client.Close();
  chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 1u);
  const Marks marks = MarksOf(chain.proxy->trace_path(), 2);
  EXPECT_EQ(marks.refused, "--inject MAP_BAR:bar=2:error=no such: bar");
  EXPECT_EQ(marks.injected, marks.refused);
  EXPECT_EQ(marks.answer_injected, marks.refused);
  const json report = Report(chain.proxy->trace_path());
  EXPECT_EQ(report["refusals_total"], 0) << "the server refused nothing";
  EXPECT_EQ(EntryOf(chain.proxy->trace_path(), "error=no such: bar")["count"], 1);
}

TEST(InjectOnTheWire, Drop) {
  Chain chain({}, Inject({"MMIO_WRITE:bar=2:when=2:drop"}));
  Client client(chain.proxy->address());
  Bytes all;
  for (uint32_t i = 1; i <= 3; i++) all = all + Write(2, 0x800, Pattern(8, i));
  ASSERT_TRUE(client.Send(all + Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  client.Close();
  chain.proxy->Finish();
  const auto served = chain.server->requests();
  ASSERT_EQ(served.size(), 3u);
  EXPECT_EQ(served[0].payload, Pattern(8, 1));
  EXPECT_EQ(served[1].payload, Pattern(8, 3));
  const json report = Report(chain.proxy->trace_path());
  EXPECT_EQ(report["session"]["doorbells"], 2);
  EXPECT_EQ(report["session"]["injected"], 1);
  EXPECT_EQ(EntryOf(chain.proxy->trace_path(), ":drop")["first_seq"], 2);
}

TEST(InjectOnTheWire, Close) {
  Chain chain({}, Inject({"CFG_READ:when=2:close"}));
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_TRUE(client.AtEnd());
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 1u);
  const auto ends = trace.Events(SessionEvent::DISCONNECT);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].closed_first(), "proxy");
  EXPECT_EQ(ends[0].text(), "--inject CFG_READ:when=2:close");
  EXPECT_EQ(EntryOf(chain.proxy->trace_path(), ":close")["command"], "CFG_READ");
}

TEST(InjectOnTheWire, Delay) {
  Chain chain({}, Inject({"CFG_READ:when=2:delay=150"}));
  Client client(chain.proxy->address());
  const auto ask = [&] {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
    return std::chrono::steady_clock::now() - start;
  };
  ask();
  EXPECT_GE(ask(), std::chrono::milliseconds(149));
  ask();
  // What stands behind it waits with it, and stays in order.
  client.Close();
  chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 3u);
  EXPECT_EQ(MarksOf(chain.proxy->trace_path(), 2).injected, "--inject CFG_READ:when=2:delay=150");
  EXPECT_EQ(MarksOf(chain.proxy->trace_path(), 2).answer_injected, "");
  EXPECT_EQ(EntryOf(chain.proxy->trace_path(), "delay=150")["kind"], "inject");
}

TEST(InjectOnTheWire, DelayedMessagesOfAClientThatLeft) {
  Chain chain({}, Inject({"MMIO_WRITE:when=1:delay=200"}));
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Write(0, 0, Pattern(8)) + Write(0, 8, Pattern(8))));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 2u) << "delivered all the same";
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_FALSE(trace.calls[1].truncated);
}

TEST(InjectOnTheWire, Short) {
  for (const uint64_t keep : {0ull, 3ull, 20'000ull, 250'000ull, 400'000ull}) {
    Chain chain({}, Inject({"MMIO_READ:bar=0:when=1:short=" + std::to_string(keep)}));
    Client client(chain.proxy->address());
    constexpr size_t kSize = 300'000;
    ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 0, 0x40, kSize)));
    const Bytes whole = Pattern(kSize, 0x40);
    const size_t comes = static_cast<size_t>(std::min<uint64_t>(keep, kSize));
    EXPECT_EQ(client.Recv(17 + comes),
              Reply(0, kSize) + Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(comes)))
        << keep;
    // The server is not out of step: the next answer follows at once.
    ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002)) << keep;
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    ASSERT_EQ(trace.calls.size(), 2u);
    EXPECT_EQ(trace.calls[0].body_size, kSize);
    const std::string mark = MarksOf(chain.proxy->trace_path(), 1).answer_injected;
    if (keep < kSize) {
      EXPECT_EQ(mark, "--inject MMIO_READ:bar=0:when=1:short=" + std::to_string(keep) +
                          "; the server said 300000 bytes");
      EXPECT_EQ(EntryOf(chain.proxy->trace_path(), ":short=")["count"], 1);
    } else {
      EXPECT_EQ(mark, "");
    }
  }
}

// Without rules nothing of this exists, and with rules that do not match the bytes are the same.
TEST(InjectOnTheWire, WhatDoesNotMatchIsUnchanged) {
  Bytes first;
  for (const bool rules : {false, true}) {
    Chain chain({}, rules ? Inject({"MMIO_READ:bar=3:value=1", "PING:delay=5"}) : SessionOptions());
    Client client(chain.proxy->address());
    Bytes got;
    for (uint64_t i = 0; i < 300; i++) {
      ASSERT_TRUE(client.Send(Write(0, i * 8, Pattern(8)) +
                              Request(Command::kMmioRead, 5, i * 4, 1 + i * 7)));
      got = std::move(got) + client.Recv(17 + 1 + i * 7);
    }
    ASSERT_TRUE(client.Send(Request(Command::kMapSysmemFd, 0, 0x4000)));
    const Received region = client.RecvOnce(17);
    EXPECT_EQ(region.bytes, Reply(0, 0x4000, 0));
    ASSERT_EQ(region.fds.size(), 1u);
    ::close(region.fds[0]);
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    EXPECT_EQ(trace.calls.size(), 601u);
    EXPECT_EQ(chain.server->short_headers(), 0);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
  }
}

// ---- autopsy ---------------------------------------------------------------------------------

SessionOptions WithAutopsy(uint64_t timeout_ms = 2000) {
  RuleOptions rules;
  rules.asic = "navi31";
  SessionOptions options;
  options.autopsy.emplace();
  options.autopsy->asic = (*MakeRuleSet(rules))->asic;
  options.autopsy->read_timeout_ms = timeout_ms;
  return options;
}

TEST(AutopsyOnTheWire, ReadsWhenTheClientHasLeft) {
  Chain chain({}, WithAutopsy());
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kMapBar, 5)));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x7f0000100000, 0x100000));
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  const auto served = chain.server->requests();
  ASSERT_GT(served.size(), 20u);
  bool scratch = false;
  for (size_t i = 1; i < served.size(); i++) {
    EXPECT_EQ(served[i].header.command, static_cast<uint8_t>(Command::kMmioRead));
    EXPECT_EQ(served[i].header.bar, 5u);
    EXPECT_EQ(served[i].header.arg1, 4u);
    scratch |= served[i].header.arg0 == kScratch7;
  }
  EXPECT_TRUE(scratch);
  ASSERT_EQ(trace.calls.size(), served.size());
  const std::string& path = chain.proxy->trace_path();
  EXPECT_EQ(MarksOf(path, 2).injected, "autopsy: after the client has left: regSCRATCH_REG6");
  EXPECT_EQ(MarksOf(path, 2).answer_injected, MarksOf(path, 2).injected);
  const auto ends = trace.Events(SessionEvent::DISCONNECT);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].closed_first(), "client");
  EXPECT_EQ(ends[0].unanswered(), 0u);
  const json report = Report(path);
  EXPECT_EQ(report["proxy"]["autopsy"], served.size() - 1);
  EXPECT_EQ(report["session"]["calls"], 1);
  EXPECT_NE(report["scratch"]["reg7"], nullptr) << "what it read is known of the card";
  EXPECT_TRUE(chain.proxy->WaitLog("registers read after the client has left"));
}

TEST(AutopsyOnTheWire, AServerThatIsSilentIsGivenUp) {
  Chain chain(
      [](int fd, StubServer& server) {
        server.Next(fd);
        Send(fd, Reply(0, 0x7f0000100000, 0x100000));
        while (server.Next(fd)) {
        }
      },
      WithAutopsy(200));
  Client client(chain.proxy->address());
  ASSERT_TRUE(client.Send(Request(Command::kMapBar, 5)));
  EXPECT_EQ(client.Recv(17).size(), 17u);
  client.Close();
  const Decoded trace = chain.proxy->Finish();
  EXPECT_EQ(chain.server->count(), 2u) << "one question, no more";
  EXPECT_TRUE(chain.proxy->WaitLog("did not answer in time"));
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_FALSE(trace.calls[1].answered);
  const json report = Report(chain.proxy->trace_path());
  EXPECT_EQ(report["session"]["unanswered_total"], 0) << "the client got all its answers";
}

TEST(AutopsyOnTheWire, NotWithoutAMappedBarOrAKnownCard) {
  for (const bool mapped : {false, true}) {
    SessionOptions options = WithAutopsy();
    if (mapped) options.autopsy->asic = nullptr;
    Chain chain({}, options);
    Client client(chain.proxy->address());
    ASSERT_TRUE(
        client.Send(mapped ? Request(Command::kMapBar, 5) : Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(client.Recv(17).size(), 17u);
    client.Close();
    chain.proxy->Finish();
    EXPECT_EQ(chain.server->count(), 1u);
    EXPECT_TRUE(chain.proxy->WaitLog(mapped ? "the card's registers are not known"
                                            : "the client has not mapped BAR 5"));
  }
}

// With --hold-upstream, also for a client that was waiting all the while.
TEST(AutopsyOnTheWire, TheNextClientIsServedAfterwards) {
  SessionOptions options = WithAutopsy();
  options.hold_upstream = true;
  Chain chain({}, options);
  Client first(chain.proxy->address());
  ASSERT_TRUE(first.Send(Request(Command::kMapBar, 5)));
  EXPECT_EQ(first.Recv(17), Reply(0, 0x7f0000100000, 0x100000));
  Client second(chain.proxy->address());
  ASSERT_TRUE(second.Send(Request(Command::kCfgRead, 0, 0, 4)));
  EXPECT_TRUE(chain.proxy->WaitLog("is waiting for client 1"));
  first.Close();
  EXPECT_EQ(second.Recv(17), Reply(0, 0x744c1002));
  EXPECT_EQ(chain.proxy->CountLog("registers read after the client has left"), 1);
  second.Close();
  chain.proxy->Finish();
  EXPECT_EQ(chain.server->connections(), 2);
}

// Its decisions, without sockets.
TEST(Autopsy, OneOfEachStallAndOneQuestionAtATime) {
  AutopsyOptions options;
  options.asic = std::make_shared<const amd::RegisterMap>(amd::RegisterMap::Assumed());
  Autopsy autopsy(options);
  constexpr uint64_t kS = 1'000'000'000;
  EXPECT_FALSE(autopsy.Due(0, 100 * kS));
  EXPECT_FALSE(autopsy.Due(10 * kS, 14 * kS));
  EXPECT_TRUE(autopsy.Due(10 * kS, 15 * kS));
  EXPECT_EQ(autopsy.Begin("x", 10 * kS, 15 * kS), "the client has not mapped BAR 5");
  EXPECT_FALSE(autopsy.Due(10 * kS, 16 * kS)) << "not again for the same stall";
  wire::ReplyEvent mapped;
  mapped.kind = wire::ReplyEvent::Kind::kReply;
  mapped.request = {{static_cast<uint8_t>(Command::kMapBar), 3, 5, 0, 0, 0}, 1};
  mapped.reply = {0, 0x7f00, 0x8000};  // only the first 32 KiB
  autopsy.OnReply(mapped);
  EXPECT_TRUE(autopsy.Due(20 * kS, 30 * kS));
  EXPECT_EQ(autopsy.Begin("after a stall", 20 * kS, 30 * kS), "");
  const auto read = autopsy.Next();
  ASSERT_TRUE(read);
  EXPECT_LT(read->header.arg0, 0x8000u) << "within the BAR";
  EXPECT_EQ(read->header.dev, 3u);
  autopsy.Sent(7, 30 * kS);
  EXPECT_FALSE(autopsy.Next()) << "one at a time";
  EXPECT_FALSE(autopsy.Expire(30 * kS + 999'000'000));
  EXPECT_TRUE(autopsy.Expire(31 * kS));
  EXPECT_FALSE(autopsy.active());
  EXPECT_TRUE(autopsy.Owns(7)) << "its late answer is not the client's";
  EXPECT_EQ(autopsy.Begin("again", 40 * kS, 50 * kS), "the server has not answered the one before");
  autopsy.Answered(7, true);
  EXPECT_FALSE(autopsy.Owns(7));
  EXPECT_EQ(autopsy.Begin("again", 60 * kS, 70 * kS), "");
  size_t reads = 0;
  while (const auto next = autopsy.Next()) {
    autopsy.Sent(100 + reads, 70 * kS);
    autopsy.Answered(100 + reads, true);
    reads++;
  }
  EXPECT_GT(reads, 3u);
  EXPECT_FALSE(autopsy.active());
}

}  // namespace
}  // namespace tg::proxy::test
