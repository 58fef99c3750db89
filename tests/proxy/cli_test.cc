// The program itself: command line, child, signals, socket files, kill -9, full disks, limits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "schemas/wire/bytes.h"
#include "tests/proxy/rig.h"
#include "tests/wire/hex.h"

#ifndef RPCPROXY
#define RPCPROXY "rpcproxy"  // CMake knows where it is; a mere compile check does not
#endif

namespace tg::proxy::test {
namespace {

using tg::test::Hex;
using tinygpu::trace::SessionEvent;
using wire::Command;

const Bytes kCfgRead = Hex("030000000000000000000000000000000004000000000000000000000000000000");

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// A program with its standard error (and output) in a file.
class Program {
 public:
  Program(const TempDir& dir, std::vector<std::string> words,
          std::vector<std::pair<std::string, std::string>> env = {}) {
    static int number = 0;
    output_ = dir / ("output" + std::to_string(number++));
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int fd = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, 1);
    ::dup2(fd, 2);
    for (int other = 3; other < 256; other++) ::close(other);
    for (const char* name : {"REMOTE", "APL_REMOTE_SOCK"}) ::unsetenv(name);
    for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> args;
    for (std::string& word : words) args.push_back(word.data());
    args.push_back(nullptr);
    ::execvp(args[0], args.data());
    ::_exit(125);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Program(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const { ::kill(pid_, number); }
  // Exit status, or 1000 + signal.
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string Output() const { return ReadFile(output_); }
  bool WaitOutput(std::string_view text, int ms = 10000) const {
    return Eventually([&] { return Output().find(text) != std::string::npos; }, ms);
  }

 private:
  pid_t pid_ = -1;
  std::string output_;
};

struct Cli : testing::Test {
  TempDir dir;
  std::string sock = dir / "proxy.sock", upstream = dir / "server.sock", trace = dir / "t.pb";
  std::vector<std::string> Words(std::vector<std::string> more = {},
                                 const std::string& verb = "serve") const {
    std::vector<std::string> words = {RPCPROXY, verb, "-l", sock, "-u", upstream, "-o", trace};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

bool Listening(const Program& program) {
  return program.WaitOutput("point the client here");
}

TEST_F(Cli, RunPointsTheChildHereAndPassesItsStatus) {
  StubServer server(UnixAt(upstream));
  Program run(dir, Words({"--", "/bin/sh", "-c",
                          "echo child sees $APL_REMOTE_SOCK remote ${REMOTE-unset}; exit 7"},
                         "run"));
  EXPECT_EQ(run.Wait(), 7);
  EXPECT_NE(run.Output().find("child sees " + sock + " remote unset\n"), std::string::npos);
  const Decoded decoded = Decode(trace);
  EXPECT_EQ(decoded.end_state, trace::EndState::kClean);
  const auto exits = decoded.Events(SessionEvent::CHILD_EXIT);
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].exit_status(), 7);
  EXPECT_NE(::access(sock.c_str(), F_OK), 0);  // cleaned up
}

TEST_F(Cli, RunOverTcpSetsRemote) {
  StubServer server(TcpLocal());
  Program run(dir, {RPCPROXY, "run", "-u", wire::FormatAddress(server.address()), "-o", trace, "--",
                    "/bin/sh", "-c", "echo remote is $REMOTE"});
  EXPECT_EQ(run.Wait(), 0);
  EXPECT_NE(run.Output().find("remote is 127.0.0.1:"), std::string::npos);
}

TEST_F(Cli, RunReportsSignalsAndMissingCommandsAsAShellDoes) {
  {
    Program run(dir, Words({"--", "/bin/sh", "-c", "kill -9 $$"}, "run"));
    EXPECT_EQ(run.Wait(), 137);
  }
  {
    Program run(dir, Words({"--", "/no/such/program"}, "run"));
    EXPECT_EQ(run.Wait(), 127);
  }
  {
    Program run(dir, Words({"--", "/etc/passwd"}, "run"));
    EXPECT_EQ(run.Wait(), 126);
  }
}

TEST_F(Cli, RunForwardsSignals) {
  Program run(dir, Words({"--", "/bin/sh", "-c",
                          "trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done"},
                         "run"));
  ASSERT_TRUE(run.WaitOutput("ready"));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 42);
}

TEST_F(Cli, UsageErrors) {
  const std::vector<std::vector<std::string>> wrong = {
      {RPCPROXY, "run"},
      {RPCPROXY, "--no-such-option"},
      {RPCPROXY, "--bodies", "x"},
      {RPCPROXY, "serve", "--listen", "localhost:99"},
      {RPCPROXY, "serve", "--", "x"}};
  for (const auto& words : wrong) {
    Program program(dir, words);
    EXPECT_EQ(program.Wait(), 2) << words.back();
    EXPECT_FALSE(program.Output().empty());
  }
}

TEST_F(Cli, PathThatIsTooLong) {  // B14 b
  Program program(dir, {RPCPROXY, "serve", "-l", "/tmp/" + std::string(115, 'x')});
  EXPECT_NE(program.Wait(), 0);
  EXPECT_NE(program.Output().find("120 bytes long, this system takes at most " +
                                  std::to_string(wire::UnixPathLimit())),
            std::string::npos)
      << program.Output();
}

TEST_F(Cli, SocketAndTraceArePrivate) {
  Program program(dir, Words());
  ASSERT_TRUE(Listening(program));
  for (const std::string& path : {sock, trace}) {
    struct stat st {};
    ASSERT_EQ(0, ::stat(path.c_str(), &st));
    EXPECT_EQ(st.st_mode & 0777, 0600u) << path;
  }
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_EQ(Decode(trace).end_state, trace::EndState::kClean);
}

TEST_F(Cli, StaleSocketIsReplacedLiveOneIsNot) {
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    std::strcpy(un.sun_path, sock.c_str());
    ASSERT_EQ(0, ::bind(fd, reinterpret_cast<sockaddr*>(&un), sizeof un));
    ::close(fd);
  }
  Program first(dir, Words());
  ASSERT_TRUE(Listening(first));
  EXPECT_NE(first.Output().find("removed the stale socket " + sock), std::string::npos);

  Program second(dir, {RPCPROXY, "serve", "-l", sock, "-u", upstream, "-o", dir / "second.pb"});
  EXPECT_NE(second.Wait(), 0);
  EXPECT_NE(second.Output().find("in use by process " + std::to_string(first.pid())),
            std::string::npos)
      << second.Output();
  // The first one is unharmed.
  StubServer server(UnixAt(upstream));
  Client client(UnixAt(sock));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
}

TEST_F(Cli, FileThatIsNoSocketIsLeftAlone) {
  std::ofstream(sock) << "precious";
  Program program(dir, Words());
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_EQ(ReadFile(sock), "precious");
}

TEST_F(Cli, ReplacedSocketIsSaid) {  // B14 c
  Program program(dir, Words());
  ASSERT_TRUE(Listening(program));
  ASSERT_EQ(0, ::unlink(sock.c_str()));
  StubServer thief(UnixAt(sock));
  EXPECT_TRUE(program.WaitOutput("was replaced by process " + std::to_string(::getpid())))
      << program.Output();
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_EQ(Decode(trace).Events(SessionEvent::REPLACED).size(), 1u);
  EXPECT_EQ(::access(sock.c_str(), F_OK), 0);  // the thief's file is not ours to remove
}

TEST_F(Cli, DangerousWordsInTheCommandLineAreSaid) {
  Program program(dir, {RPCPROXY, "serve", "-l", sock, "-o", trace, "-u", dir / "tinygpu.sock"});
  ASSERT_TRUE(Listening(program));
  EXPECT_NE(program.Output().find("tinygpu.sock' in the command line"), std::string::npos);
  Program by_environment(dir, {RPCPROXY, "serve", "-l", dir / "b.sock", "-o", dir / "b.pb"},
                         {{"RPCPROXY_UPSTREAM", dir / "tinygpu.sock"}});
  ASSERT_TRUE(Listening(by_environment));
  EXPECT_EQ(by_environment.Output().find("in the command line"), std::string::npos);
  EXPECT_NE(by_environment.Output().find("server unix:" + (dir / "tinygpu.sock")),
            std::string::npos);
}

TEST_F(Cli, UpstreamIsWhereTinygradWouldConnect) {
  const std::string temp = dir / "";
  {
    Program program(dir, {RPCPROXY, "serve", "-o", trace}, {{"TMPDIR", temp}});
    ASSERT_TRUE(Listening(program));
    EXPECT_NE(program.Output().find("listening on unix:" + (dir / "rpcproxy.sock") +
                                    ", server unix:" + (dir / "tinygpu.sock")),
              std::string::npos)
        << program.Output();
  }
  {
    Program program(dir, {RPCPROXY, "serve", "-o", trace},
                    {{"TMPDIR", temp}, {"APL_REMOTE_SOCK", dir / "other.sock"}});
    ASSERT_TRUE(Listening(program));
    EXPECT_NE(program.Output().find("server unix:" + (dir / "other.sock")), std::string::npos);
  }
  {
    // The shell points clients at the proxy already: not a loop.
    Program program(dir, {RPCPROXY, "serve", "-o", trace},
                    {{"TMPDIR", temp}, {"APL_REMOTE_SOCK", dir / "rpcproxy.sock"}});
    ASSERT_TRUE(Listening(program));
    EXPECT_NE(program.Output().find("server unix:" + (dir / "tinygpu.sock")), std::string::npos);
  }
}

TEST_F(Cli, OldTraceIsKept) {
  std::ofstream(trace) << "the one with the hang";
  Program program(dir, Words({"--", "/bin/true"}, "run"));
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_EQ(ReadFile(trace + ".old"), "the one with the hang");
}

TEST_F(Cli, AllRegionsPassUnderALimitOf256Files) {  // B02
  StubServer server(UnixAt(upstream));
  std::string line = "ulimit -n 256; exec";
  for (const std::string& word : Words()) line += " '" + word + "'";
  Program program(dir, {"/bin/sh", "-c", line});
  ASSERT_TRUE(Listening(program));
  Client client(UnixAt(sock));
  const Bytes map = Hex("020000000000000000001000000000000000000000000000000000000000000000");
  for (uint64_t i = 0; i < 128; i++) {
    ASSERT_TRUE(client.Send(map));
    const Received got = client.RecvOnce(17);
    ASSERT_EQ(got.bytes, Reply(0, 0x4000, i));
    ASSERT_EQ(got.fds.size(), 1u) << i;
    ::close(got.fds[0]);
  }
  ASSERT_TRUE(client.Send(map));
  EXPECT_EQ(client.Recv(17), Reply(1));
  client.Close();
  ASSERT_TRUE(program.WaitOutput("client 1 done"));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 0);
  const auto regions = Decode(trace).Regions();
  ASSERT_EQ(regions.size(), 128u);
  for (const auto& region : regions) EXPECT_EQ(region.mapped(), 0x4000u);
}

// The file may not grow beyond 20 MiB (40 where the shell counts kilobytes): traffic goes on, the
// loss is counted and said.
TEST_F(Cli, FullDiskDoesNotStopTraffic) {
  StubServer server(UnixAt(upstream));
  server.keep_payloads = false;
  std::string line = "ulimit -f 40960; exec";
  for (const std::string& word : Words({"--bodies", "full"})) line += " '" + word + "'";
  Program program(dir, {"/bin/sh", "-c", line});
  ASSERT_TRUE(Listening(program));
  Client client(UnixAt(sock));
  for (int i = 0; i < 60; i++) {
    ASSERT_TRUE(client.Send(Write(0, 0, Pattern(1 << 20, static_cast<uint32_t>(i)))));
    ASSERT_TRUE(client.Send(kCfgRead));
    ASSERT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  }
  client.Close();
  EXPECT_EQ(server.count(), 120u);
  EXPECT_TRUE(program.WaitOutput("traffic goes on unrecorded")) << program.Output();
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 0);
  const Decoded decoded = Decode(trace);
  ASSERT_NE(decoded.End(), nullptr);
  ASSERT_EQ(decoded.End()->losses_size(), 1);
  EXPECT_EQ(decoded.End()->losses(0).cause(), tinygpu::trace::Loss::DISK_FULL);
  EXPECT_EQ(decoded.End()->calls(), 120u);
  EXPECT_GT(decoded.End()->losses(0).calls(), 20u);
  EXPECT_GT(decoded.calls.size() - decoded.lost_calls, 3u);
}

TEST_F(Cli, StatusSeesBothWithoutConnecting) {
  StubServer server(UnixAt(upstream));
  Program program(dir, Words());
  ASSERT_TRUE(Listening(program));
  Client client(UnixAt(sock));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  Program text(dir, {RPCPROXY, "status", "-l", sock, "-u", upstream}, {{"TMPDIR", dir / ""}});
  EXPECT_EQ(text.Wait(), 0);
  const std::string me = "(pid " + std::to_string(::getpid()) + ")";
  const std::string it = "rpcproxy (pid " + std::to_string(program.pid()) + ")";
  const std::string out = text.Output();
  EXPECT_NE(out.find("proxy   unix:" + sock + ": listening, " + it), std::string::npos) << out;
  EXPECT_NE(out.find("server  unix:" + upstream + ": listening, "), std::string::npos) << out;
#ifdef __linux__
  EXPECT_NE(out.find(me + " -> " + it), std::string::npos) << out;
  EXPECT_NE(out.find("connected: " + it + " -> "), std::string::npos) << out;
#endif
  EXPECT_NE(out.find("am_usb4.lock: no such file"), std::string::npos) << out;
  EXPECT_EQ(server.connections(), 1);  // nobody else connected

  Program json(dir, {RPCPROXY, "status", "-l", sock, "-u", dir / "nobody", "--format", "json"});
  EXPECT_EQ(json.Wait(), 0);
  EXPECT_NE(json.Output().find("\"listening\": true"), std::string::npos);
  EXPECT_NE(json.Output().find("\"listening\": false"), std::string::npos);
  EXPECT_NE(json.Output().find("\"pid\": " + std::to_string(program.pid())), std::string::npos);
}

TEST_F(Cli, StatusSeesLocks) {
  const std::string lock = dir / "am_usb4.lock";
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(0, ::flock(fd, LOCK_EX | LOCK_NB));
  Program status(dir, {RPCPROXY, "status"}, {{"TMPDIR", dir / ""}});
  EXPECT_EQ(status.Wait(), 0);
  EXPECT_NE(status.Output().find(lock + ": held by"), std::string::npos) << status.Output();
  ::close(fd);
  Program after(dir, {RPCPROXY, "status"}, {{"TMPDIR", dir / ""}});
  EXPECT_EQ(after.Wait(), 0);
  EXPECT_NE(after.Output().find(lock + ": free"), std::string::npos) << after.Output();
}

TEST_F(Cli, UnansweredResetIsTheLastThingInTheTrace) {  // B10
  StubServer server(UnixAt(upstream), [](int fd, StubServer& s) {
    while (s.Next(fd)) {
    }
  });
  Program program(dir, Words());
  ASSERT_TRUE(Listening(program));
  Client client(UnixAt(sock));
  for (uint64_t i = 0; i < 30; i++) ASSERT_TRUE(client.Send(Write(0, 8 * i, Pattern(8))));
  ASSERT_TRUE(
      client.Send(Hex("050000000000000000000000000000000000000000000000000000000000000000")));
  ASSERT_TRUE(server.WaitFor(31));
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait(), 1000 + SIGKILL);
  const Decoded decoded = Decode(trace);
  EXPECT_EQ(decoded.end_state, trace::EndState::kNotClosed);
  ASSERT_EQ(decoded.calls.size(), 31u);
  EXPECT_EQ(decoded.calls[30].header.command, 5);
  EXPECT_FALSE(decoded.calls[30].answered);
}

// What the server has seen is in the trace, whenever the proxy dies.
TEST_F(Cli, KillNineLosesNothingTheServerSaw) {
  const char* soak = std::getenv("TINYGPU_SOAK");
  const int rounds = soak ? 200 : 12;
  std::mt19937 random(2026);
  size_t seen = 0;
  for (int round = 0; round < rounds; round++) {
    StubServer server(UnixAt(upstream));
    Program program(dir, Words());
    ASSERT_TRUE(Listening(program));
    Client client(UnixAt(sock));  // connected before the kill can come
    std::thread load([&, seed = random()] {
      std::mt19937 choice(seed);
      for (uint64_t i = 0;; i++) {
        Bytes message;
        switch (choice() % 16) {
          case 0:
            message = Request(Command::kMmioRead, 5, 4 * i, 4);
            break;
          case 1:
            message = Write(0, i, Pattern(1 + choice() % 20000, static_cast<uint32_t>(i)));
            break;
          case 2:
            message = Request(Command::kMmioRead, 5, 0x4b8c, 4);  // polls, for folding
            break;
          default:
            message = Write(2, 8 * (i % 4096), Pattern(8, static_cast<uint32_t>(i)));
        }
        if (!client.Send(message)) return;
        if (message[0] == 6 && client.Recv(21).size() < 21) return;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 60000));
    program.Signal(SIGKILL);
    program.Wait();
    load.join();
    // The server reads what is on its way to it.
    size_t count = server.count();
    while (!Eventually([&] { return server.count() > count; }, 30)
               ? false
               : (count = server.count(), true)) {
    }
    const auto served = server.requests();
    const Decoded decoded = Decode(trace);
    EXPECT_EQ(decoded.end_state, trace::EndState::kNotClosed);
    ASSERT_GE(decoded.calls.size(), served.size()) << "round " << round;
    for (size_t i = 0; i < served.size(); i++) {
      ASSERT_EQ(decoded.calls[i].header, served[i].header)
          << "round " << round << " call " << i + 1;
      ASSERT_EQ(decoded.calls[i].payload_size, served[i].payload.size());
      if (served[i].payload.size() <= 4096) {
        ASSERT_EQ(decoded.calls[i].payload, served[i].payload);
      }
    }
    seen += served.size();
  }
  EXPECT_GT(seen, 100u);
}

#ifdef __linux__
TEST_F(Cli, MemoryStaysBoundedWhileBulkDataPasses) {
  StubServer server(UnixAt(upstream));
  server.keep_payloads = false;
  Program program(dir, Words({"--bodies", "full"}));
  ASSERT_TRUE(Listening(program));
  Client client(UnixAt(sock));
  const Bytes message = Write(0, 0, Pattern(16 << 20));
  for (int i = 0; i < 12; i++) ASSERT_TRUE(client.Send(message));
  ASSERT_TRUE(client.Send(kCfgRead));
  EXPECT_EQ(client.Recv(17), Reply(0, 0x744c1002));
  std::istringstream status(ReadFile("/proc/" + std::to_string(program.pid()) + "/status"));
  std::string word;
  long kib = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kib;
  EXPECT_GT(kib, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(kib, 64 * 1024);
#endif
}
#endif

}  // namespace
}  // namespace tg::proxy::test
