// rpcreplay as people start it: exit codes, what it says of input it cannot use, --step.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "replay/net/socket.h"
#include "tests/replay/session.h"

extern char** environ;

namespace tg::replay {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/rpcreplay-cli-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The program with a pipe at its standard input and one at its two outputs.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, const std::string& input = "") {
    int in[2], out[2];
    EXPECT_EQ(pipe(in), 0);
    EXPECT_EQ(pipe(out), 0);
    arguments.insert(arguments.begin(), RPCREPLAY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    for (const int fd : {in[0], in[1], out[0], out[1]})
      posix_spawn_file_actions_addclose(&actions, fd);
    EXPECT_EQ(posix_spawn(&pid_, RPCREPLAY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    out_ = out[0];
    if (!input.empty()) {
      EXPECT_EQ(write(in[1], input.data(), input.size()), static_cast<ssize_t>(input.size()));
    }
    close(in[1]);
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    close(out_);
  }
  Program(const Program&) = delete;

  // Reads until `text` has been said.
  bool Says(const std::string& text) {
    while (said_.find(text) == std::string::npos)
      if (!ReadSome()) return false;
    return true;
  }
  // Exit code; -1 when a signal ended it, or when it hung for 20 s and had to be ended.
  int Wait() {
    while (ReadSome()) {
    }
    int status = 0;
    for (int i = 0; i < 2000; i++) {
      const pid_t done = waitpid(pid_, &status, WNOHANG);
      if (done == pid_) {
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return -1;
  }
  const std::string& said() const { return said_; }
  void Signal(int number) { kill(pid_, number); }

 private:
  bool ReadSome() {
    pollfd wait{out_, POLLIN, 0};
    if (::poll(&wait, 1, 20'000) != 1) return false;
    char bytes[4096];
    const ssize_t n = read(out_, bytes, sizeof bytes);
    if (n <= 0) return false;
    said_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  pid_t pid_ = 0;
  int out_ = -1;
  std::string said_;
};

class Cli : public ::testing::Test {
 protected:
  std::string Save(const std::vector<uint8_t>& bytes, const std::string& name = "trace.pb") {
    const std::string path = dir_ / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  std::string Save(Session& session, const std::string& name = "trace.pb") {
    return Save(session.Bytes(), name);
  }
  std::string Socket(const std::string& name = "s") { return "unix:" + (dir_ / name); }
  // `rpcreplay serve` that is ready.
  std::unique_ptr<Program> Serve(const std::string& trace, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "serve", trace, "--listen", Socket(), "--replace", "--accept-timeout", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto program = std::make_unique<Program>(arguments);
    EXPECT_TRUE(program->Says("serving ")) << program->said();
    return program;
  }
  TempDir dir_;
};

Session Good() {
  Session session(false);
  session.Connect();
  session.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000'0000, 0x10'0000});
  session.Write4(5, 0x10, 7);
  session.Read4(5, 0x14, 42);
  session.Write4(5, 0x18, 8);
  session.Read4(5, 0x1c, 43);
  session.Disconnect();
  return session;
}

// ---- both sides ------------------------------------------------------------------------------

TEST_F(Cli, DriveAgainstServeOfTheSameTrace) {
  Session session = Good();
  const std::string trace = Save(session);
  auto server = Serve(trace);
  Program drive({"drive", trace, "--upstream", Socket()});
  EXPECT_EQ(drive.Wait(), 0) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("done: 5 calls sent, 3 replies as recorded"));
  EXPECT_EQ(server->Wait(), 0) << server->said();
  EXPECT_THAT(server->said(), HasSubstr("5 recorded calls played"));
}

TEST_F(Cli, StepSendsWhatIsAskedFor) {
  Session session = Good();
  const std::string trace = Save(session);
  {
    auto server = Serve(trace);
    Program drive({"drive", trace, "--upstream", Socket(), "--step"}, "\n2\nq\n");
    EXPECT_EQ(drive.Wait(), 0) << drive.said();
    // Enter sends #1, "2" sends #2 and #3, "q" ends before #4.
    EXPECT_THAT(drive.said(), HasSubstr("next: #1 MAP_BAR bar5"));
    EXPECT_THAT(drive.said(), HasSubstr("next: #2 MMIO_WRITE bar5+0x10 <- 0x00000007"));
    EXPECT_THAT(drive.said(), Not(HasSubstr("next: #3")));
    EXPECT_THAT(drive.said(), HasSubstr("next: #4 MMIO_WRITE bar5+0x18"));
    EXPECT_THAT(drive.said(), HasSubstr("stopped before call #4; 3 calls sent"));
    EXPECT_EQ(server->Wait(), 1);  // the client left early
    EXPECT_THAT(server->said(), HasSubstr("the client left before call #4"));
  }
  {
    auto server = Serve(trace);
    Program drive({"drive", trace, "--upstream", Socket(), "--step"}, "\nc\n");
    EXPECT_EQ(drive.Wait(), 0) << drive.said();
    EXPECT_THAT(drive.said(), HasSubstr("done: 5 calls sent"));
    EXPECT_EQ(server->Wait(), 0);
  }
  {
    auto server = Serve(trace);
    Program drive({"drive", trace, "--upstream", Socket(), "--step"}, "");  // no terminal
    EXPECT_EQ(drive.Wait(), 0) << drive.said();
    EXPECT_THAT(drive.said(), HasSubstr("stopped before call #1; 0 calls sent"));
  }
}

TEST_F(Cli, DivergencesOnBothSidesAreOne) {
  Session here = Good();
  Session there(false);
  there.Connect();
  there.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000'0000, 0x10'0000});
  there.Write4(5, 0x10, 7);
  there.Read4(5, 0x14, 99);  // another answer
  there.Disconnect();
  auto server = Serve(Save(there, "there.pb"));
  Program drive({"drive", Save(here), "--upstream", Socket(), "--timeout", "5"});
  EXPECT_EQ(drive.Wait(), 1) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("call #3"));
  EXPECT_THAT(drive.said(), HasSubstr("now: 0x00000063"));
  server->Wait();
}

// A client whose very first message is not the recorded one.
TEST_F(Cli, FirstMessageOfAnotherTrace) {
  Session here(false);
  here.Connect();
  here.Read4(5, 0x378c, 1);
  Session there = Good();
  auto server = Serve(Save(there, "there.pb"));
  Program drive({"drive", Save(here), "--upstream", Socket(), "--timeout", "5"});
  EXPECT_EQ(drive.Wait(), 5) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("call #1 MMIO_READ bar5+0x378c"));
  EXPECT_THAT(drive.said(), HasSubstr("closed the connection"));
  EXPECT_EQ(server->Wait(), 1) << server->said();
  EXPECT_THAT(server->said(), HasSubstr("diverges from the recording at call #1"));
  EXPECT_THAT(server->said(), HasSubstr("expected: MAP_BAR bar5"));
  EXPECT_THAT(server->said(), HasSubstr("actual:   MMIO_READ bar5+0x378c 4 bytes"));
}

// ---- files -----------------------------------------------------------------------------------

TEST_F(Cli, FilesThatAreNoTraces) {
  const std::string nothing = dir_ / "nothing.pb";
  const std::string text = Save({'n', 'o', ' ', 't', 'r', 'a', 'c', 'e', '\n'}, "text.pb");
  for (const std::string& file : {nothing, text, std::string("/")}) {
    Program serve({"serve", file, "--listen", Socket()});
    EXPECT_EQ(serve.Wait(), 3) << file << ": " << serve.said();
    EXPECT_THAT(serve.said(), HasSubstr(file));
    Program drive({"drive", file, "--upstream", Socket()});
    EXPECT_EQ(drive.Wait(), 3) << file << ": " << drive.said();
  }
}

TEST_F(Cli, TraceWithoutCalls) {
  Session session;
  session.Connect();
  const std::string trace = Save(session);
  Program serve({"serve", trace, "--listen", Socket()});
  EXPECT_EQ(serve.Wait(), 4) << serve.said();
  EXPECT_THAT(serve.said(), HasSubstr("holds no calls"));
  Program drive({"drive", trace, "--upstream", Socket()});
  EXPECT_EQ(drive.Wait(), 4) << drive.said();
}

TEST_F(Cli, BodiesKeptAsHashesAreSaidBeforeTheStart) {
  Session session(false);
  session.Read4(5, 0, 1);
  const uint64_t read = session.Unanswered(MmioRead(0, 0, 100'000));
  trace::ReplyRecord reply;
  reply.call = read;
  reply.reply = {0, 100'000, 0};
  reply.body.size = 100'000;
  reply.body.xxh3 = 1;
  session.writer().Reply(reply, session.now());
  trace::RequestRecord request;
  request.header = MmioWrite(0, 0, 200'000);
  request.payload.size = 200'000;
  request.payload.xxh3 = 2;
  session.writer().Request(request, session.now());
  const std::string trace = Save(session);
  Program serve({"serve", trace, "--listen", Socket()});
  EXPECT_EQ(serve.Wait(), 4) << serve.said();
  EXPECT_THAT(serve.said(), HasSubstr("1 replies were recorded without their data"));
  EXPECT_THAT(serve.said(), HasSubstr("#2 MMIO_READ bar0+0x0 100000 bytes"));
  EXPECT_THAT(serve.said(), HasSubstr("--bodies full"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "s")) << "it must not have listened";
  Program drive({"drive", trace, "--upstream", Socket(), "--allow-writes"});
  EXPECT_EQ(drive.Wait(), 4) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("#3 MMIO_WRITE bar0+0x0"));
  EXPECT_THAT(drive.said(), HasSubstr("nothing was sent"));
}

TEST_F(Cli, LossyTraceIsNotPlayedUnlessAskedFor) {
  Session session(false);
  session.Connect();
  session.Read4(5, 0, 1);
  tinygpu::trace::Packet loss;
  loss.mutable_loss()->set_cause(tinygpu::trace::Loss::DISK_FULL);
  loss.mutable_loss()->set_calls(3);
  session.Append(loss);
  session.Read4(5, 8, 2);
  const std::string trace = Save(session);
  Program serve({"serve", trace, "--listen", Socket()});
  EXPECT_EQ(serve.Wait(), 4) << serve.said();
  EXPECT_THAT(serve.said(), HasSubstr("calls are missing after #1"));
  Program drive({"drive", trace, "--upstream", Socket(), "--allow-writes"});
  EXPECT_EQ(drive.Wait(), 4) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("calls are missing after #1"));
  // As far as it goes, and then it says where it stopped.
  auto partial = Serve(trace, {"--partial"});
  Program through({"drive", trace, "--upstream", Socket(), "--partial"});
  EXPECT_EQ(through.Wait(), 4) << through.said();
  EXPECT_THAT(through.said(), HasSubstr("gap after call #1"));
}

TEST_F(Cli, EveryTruncationOfATraceEnds) {
  Session session = Good();
  const std::vector<uint8_t> whole = session.Bytes();
  for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 40) {
    const std::string trace = Save({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    Program list({"drive", trace, "--list"});
    const int code = list.Wait();
    EXPECT_TRUE(code == 0 || code == 3 || code == 4) << size << ": " << code << list.said();
    EXPECT_FALSE(list.said().empty()) << size;
  }
}

TEST_F(Cli, TruncatedTraceIsPlayedToItsLastCall) {
  Session session = Good();
  std::vector<uint8_t> bytes = session.Bytes();
  bytes.resize(bytes.size() - 60);  // into its end record and the last calls
  const std::string trace = Save(bytes);
  auto server = Serve(trace);
  EXPECT_THAT(server->said(), HasSubstr("the trace was not closed cleanly"));
  Program drive({"drive", trace, "--upstream", Socket()});
  drive.Wait();
  EXPECT_THAT(drive.said(), HasSubstr("the trace was not closed cleanly"));
  server->Wait();
}

TEST_F(Cli, TraceOfTheOlderProtocol) {
  Session old(false);
  tinygpu::trace::Packet revision;
  revision.mutable_event()->set_kind(tinygpu::trace::SessionEvent::REVISION);
  revision.mutable_event()->set_revision(1);
  old.Connect();
  old.Append(revision);
  old.Call(Header(wire::Command::kMapBar, 5), {0, 0x10'0000, 0x7000'0000});
  old.Read4(5, 0x14, 42);
  old.Disconnect();
  const std::string trace = Save(old, "old.pb");
  {
    // Both sides old: played.
    auto server = Serve(trace);
    EXPECT_THAT(server->said(), HasSubstr("the older protocol"));
    Program drive({"drive", trace, "--upstream", Socket(), "--allow-writes"});
    EXPECT_EQ(drive.Wait(), 0) << drive.said();
    EXPECT_EQ(server->Wait(), 0) << server->said();
  }
  {
    // An old client at a server of today.
    Session today = Good();
    auto server = Serve(Save(today));
    Program drive({"drive", trace, "--upstream", Socket(), "--allow-writes", "--timeout", "5"});
    EXPECT_EQ(drive.Wait(), 5) << drive.said();
    EXPECT_THAT(drive.said(), HasSubstr("call #1 MAP_BAR"));
    EXPECT_EQ(server->Wait(), 1);
    EXPECT_THAT(server->said(), HasSubstr("26 bytes are the header of the older protocol"));
  }
}

// ---- the other side --------------------------------------------------------------------------

TEST_F(Cli, NobodyListens) {
  Session session = Good();
  Program drive({"drive", Save(session), "--upstream", Socket("nobody")});
  EXPECT_EQ(drive.Wait(), 3) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("nobody"));
}

TEST_F(Cli, ServerThatAcceptsAndSaysNothing) {
  auto listener = Listener::Open(*wire::ParseAddress(Socket("mute")), false);
  ASSERT_TRUE(listener) << listener.error().message;
  Session session = Good();
  Program drive({"drive", Save(session), "--upstream", Socket("mute"), "--allow-writes",
                 "--allow-reset", "--timeout", "0.5"});
  EXPECT_EQ(drive.Wait(), 5) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("call #1 MAP_BAR bar5"));
  EXPECT_THAT(drive.said(), HasSubstr("the server stopped answering"));
  // Without the permission it was only asked for a proof, and got nothing else.
  Program list({"drive", Save(session), "--upstream", Socket("mute"), "--timeout", "0.5"});
  EXPECT_EQ(list.Wait(), 2) << list.said();
  EXPECT_THAT(list.said(), HasSubstr("did not prove to be a simulator"));
}

TEST_F(Cli, ClientsThatStaySilentOrAway) {
  Session session = Good();
  const std::string trace = Save(session);
  auto server = Serve(trace, {"--idle-timeout", "0.3"});
  auto client = Connect(*wire::ParseAddress(Socket()), Deadline::In(milliseconds(5000)));
  ASSERT_TRUE(client);
  EXPECT_EQ(server->Wait(), 5) << server->said();
  EXPECT_THAT(server->said(), HasSubstr("the client sent nothing"));
  Program alone({"serve", trace, "--listen", Socket("alone"), "--accept-timeout", "0.2"});
  EXPECT_EQ(alone.Wait(), 5) << alone.said();
  EXPECT_THAT(alone.said(), HasSubstr("no client came within 0.2 s"));
}

TEST_F(Cli, SignalsEndIt) {
  Session session = Good();
  auto server = Serve(Save(session));
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 130) << server->said();
  EXPECT_FALSE(std::filesystem::exists(dir_ / "s"));
}

TEST_F(Cli, CommandLinesThatCannotBe) {
  Session session = Good();
  const std::string trace = Save(session);
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"serve"},
      {"serve", trace},
      {"serve", trace, "--listen", ""},
      {"serve", trace, "--listen", Socket(), "--mode", "odd"},
      {"drive", trace},
      {"drive", trace, "--upstream", "tcp:"},
      {"drive", trace, "--upstream", Socket(), "--speed", "-1"},
      {"drive", trace, "--upstream", Socket(), "--nonsense"},
  };
  for (const auto& line : lines) {
    Program program(line);
    EXPECT_EQ(program.Wait(), 2) << ::testing::PrintToString(line) << program.said();
    EXPECT_FALSE(program.said().empty());
  }
}

// Answers that the proxy had altered are nothing a server can be held to; what it had kept from the
// server is not sent.
TEST_F(Cli, WhatTheProxyHadDoneIsNotPlayedBack) {
  Session session(false);
  session.Connect();
  session.Read4(5, 0x10, 1);
  const uint64_t read = session.Unanswered(MmioRead(5, 0x14, 4));
  const std::vector<uint8_t> ones(4, 0xff);
  trace::ReplyRecord altered;
  altered.call = read;
  altered.reply = {0, 4, 0};
  altered.body.size = 4;
  altered.body.data = ones;
  altered.injected = "--inject MMIO_READ:value=0xffffffff; the server said 0x2a";
  session.writer().Reply(altered, session.now());
  trace::RequestRecord kept;
  kept.header = Header(wire::Command::kReset);
  kept.refused = "--read-only";
  session.writer().Request(kept, session.now());
  trace::RequestRecord own;
  own.header = MmioRead(5, 0x99, 4);
  own.injected = "autopsy: the client is gone";
  session.writer().Request(own, session.now());
  session.Disconnect();
  const std::string trace = Save(session);

  Program list({"drive", trace, "--list"});
  EXPECT_EQ(list.Wait(), 0);
  EXPECT_THAT(list.said(), Not(HasSubstr("RESET")));
  EXPECT_THAT(list.said(), Not(HasSubstr("0x99")));

  Session real(false);
  real.Connect();
  real.Read4(5, 0x10, 1);
  real.Read4(5, 0x14, 0x2a);
  real.Disconnect();
  auto server = Serve(Save(real, "real.pb"));
  Program drive({"drive", trace, "--upstream", Socket()});
  EXPECT_EQ(drive.Wait(), 0) << drive.said();
  EXPECT_THAT(drive.said(), HasSubstr("2 calls sent, 1 replies as recorded"));
  EXPECT_THAT(drive.said(), HasSubstr("1 not compared (altered by the proxy then)"));
  EXPECT_EQ(server->Wait(), 0) << server->said();
}

}  // namespace
}  // namespace tg::replay
