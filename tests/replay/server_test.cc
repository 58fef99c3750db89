// The socket side: what a client really receives.
#include "replay/serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "replay/net/socket.h"
#include "replay/proof.h"
#include "replay/serve/player.h"
#include "replay/serve/shadow.h"
#include "tests/replay/session.h"

namespace tg::replay {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/rpcreplay-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Deadline Soon() {
  return Deadline::In(milliseconds(10'000));
}

// A connected pair: the server's end is served by a thread.
class Conversation {
 public:
  Conversation(Responder& responder, ServerOptions options, bool unix_socket = true) {
    const auto address = unix_socket ? wire::ParseAddress("unix:" + (dir_ / "s"))
                                     : wire::ParseAddress("tcp:127.0.0.1:0");
    auto listener = Listener::Open(*address, false);
    EXPECT_TRUE(listener) << listener.error().message;
    auto client = Connect(listener->address(), Soon());
    EXPECT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    EXPECT_TRUE(listener->Accept(server_, Soon()).ok());
    served_ = std::async(std::launch::async, [this, &responder, options, unix_socket] {
      Served served = ServeClient(server_.get(), unix_socket, responder, options,
                                  [this](const std::string& text) { notes_.push_back(text); });
      server_.reset();
      return served;
    });
  }

  void Send(const wire::RequestHeader& header, const std::vector<uint8_t>& payload = {}) {
    EXPECT_TRUE(replay::Send(client_.get(), wire::EncodeRequest(header), payload, -1, Soon()).ok());
  }
  // One recvmsg of 17 bytes, as the client makes for a descriptor.
  wire::ReplyHeader Reply() {
    std::array<uint8_t, wire::kReplySize> bytes{};
    const Transfer got = ReceiveAll(client_.get(), bytes, descriptors_, Soon());
    EXPECT_TRUE(got.ok()) << got.bytes << " " << got.problem;
    return wire::DecodeReply(bytes);
  }
  std::vector<uint8_t> Body(size_t size) {
    std::vector<uint8_t> bytes(size);
    EXPECT_TRUE(ReceiveAll(client_.get(), bytes, Soon()).ok());
    return bytes;
  }
  bool Closed() {
    uint8_t byte;
    return ReceiveOnce(client_.get(), {&byte, 1}, Soon()).end == Transfer::End::kEof;
  }
  void Leave() { client_.reset(); }
  Served Result() { return served_.get(); }
  int fd() const { return client_.get(); }
  std::vector<UniqueFd>& descriptors() { return descriptors_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  TempDir dir_;
  UniqueFd client_, server_;
  std::vector<UniqueFd> descriptors_;
  std::vector<std::string> notes_;
  std::future<Served> served_;
};

struct Recording {
  explicit Recording(Session& session, const PlayerOptions& options = {})
      : survey(Examined(session.Bytes())), player(session.Open(), survey, options) {
    EXPECT_TRUE(player.Connect());
  }
  Survey survey;
  Player player;
};

TEST(Serve, RepliesBodiesErrorsAndDescriptors) {
  Session session;
  const std::vector<uint8_t> body(0x2800, 0x5c);
  session.Call(Header(wire::Command::kMmioRead, 0, 0, body.size()), {0, body.size(), 0}, body);
  session.Call(Header(wire::Command::kMmioRead, 9, 0, 4), {1, 3, 0}, {'b', 'a', 'd'});
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Disconnect();
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(Header(wire::Command::kMmioRead, 0, 0, body.size()));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, body.size(), 0}));
  EXPECT_EQ(talk.Body(body.size()), body);
  talk.Send(Header(wire::Command::kMmioRead, 9, 0, 4));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{1, 3, 0}));
  EXPECT_EQ(talk.Body(3), (std::vector<uint8_t>{'b', 'a', 'd'}));
  EXPECT_TRUE(talk.descriptors().empty());

  talk.Send(Header(wire::Command::kMapSysmemFd, 0, 0x4000));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 0x4000, 0}));
  ASSERT_EQ(talk.descriptors().size(), 1u);
  const int fd = talk.descriptors()[0].get();
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  void* data = mmap(nullptr, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(data, MAP_FAILED);
  uint64_t pair[2];
  std::memcpy(pair, data, sizeof pair);
  EXPECT_EQ(pair[0], 0x1'0000'0000u);
  EXPECT_EQ(pair[1], 0x4000u);
  munmap(data, 0x4000);
  talk.Leave();
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kFinished) << served.text;
  EXPECT_EQ(served.requests, 3u);
}

TEST(Serve, ShortHeaderIsHungUpOnAsTheAppDoes) {
  Session session;
  session.Read4(5, 0, 1);
  Recording recording(session);
  Conversation talk(recording.player, {});
  const std::vector<uint8_t> part(26, 1);
  ASSERT_EQ(send(talk.fd(), part.data(), part.size(), 0), 26);
  EXPECT_TRUE(talk.Closed());
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kDiverged);
  EXPECT_THAT(served.text, HasSubstr("sent 26 bytes where a header of 33 begins"));
  EXPECT_THAT(served.text, HasSubstr("older protocol"));
}

TEST(Serve, OverTcpHeadersMayComeInPieces) {
  Session session;
  session.Connect(1, "tcp");
  session.Call(Header(wire::Command::kPing), {0, 0, 0});
  Recording recording(session);
  Conversation talk(recording.player, {}, false);
  const auto header = wire::EncodeRequest(Header(wire::Command::kPing));
  for (const uint8_t byte : header) {
    ASSERT_EQ(send(talk.fd(), &byte, 1, 0), 1);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 0, 0}));
  talk.Leave();
  EXPECT_EQ(talk.Result().kind, Served::Kind::kFinished);
}

TEST(Serve, FirstMessageDiverges) {
  Session session;
  session.Read4(5, 0x378c, 0x2000);
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(MmioRead(5, 4, 4));
  EXPECT_TRUE(talk.Closed());
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kDiverged);
  EXPECT_THAT(served.text, HasSubstr("call #1"));
  EXPECT_THAT(served.text, HasSubstr("actual:   MMIO_READ bar5+0x4 4 bytes"));
}

TEST(Serve, DivergencesCanBeAnsweredWithTheirReason) {
  Session session;
  session.Read4(5, 0x378c, 0x2000);
  session.Disconnect();
  Recording recording(session);
  Conversation talk(recording.player, {.answer_divergence = true});
  talk.Send(MmioWrite(5, 4, 4), {1, 2, 3, 4});  // posted: nothing to answer
  talk.Send(MmioRead(5, 4, 4));
  const wire::ReplyHeader reply = talk.Reply();
  EXPECT_EQ(reply.status, 1);
  const std::vector<uint8_t> text = talk.Body(reply.resp0);
  EXPECT_THAT(std::string(text.begin(), text.end()), HasSubstr("expected: MMIO_READ bar5+0x378c"));
  talk.Send(MmioRead(5, 0x378c, 4));
  EXPECT_EQ(talk.Reply().status, 0);
  EXPECT_EQ(talk.Body(4), Le(0x2000, 4));
  talk.Leave();
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kDiverged);
  EXPECT_EQ(served.divergences, 2u);
  EXPECT_EQ(talk.notes().size(), 2u);
}

TEST(Serve, ClosesWhereTheRecordedServerDid) {
  Session session;
  session.Connect();
  session.Call(Header(wire::Command::kMapBar, 0), {1, 6, 0}, {'n', 'o', 'c', 'a', 'r', 'd'});
  session.Disconnect("server");
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(Header(wire::Command::kMapBar, 0));
  EXPECT_EQ(talk.Reply().status, 1);
  EXPECT_EQ(talk.Body(6).size(), 6u);
  EXPECT_TRUE(talk.Closed());
  EXPECT_EQ(talk.Result().kind, Served::Kind::kFinished);
}

TEST(Serve, SilentClientIsNotWaitedForForEver) {
  Session session;
  session.Read4(5, 0, 1);
  Recording recording(session);
  Conversation talk(recording.player, {.idle_timeout = milliseconds(150)});
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kSilent);
  EXPECT_THAT(served.text, HasSubstr("the client sent nothing"));
}

TEST(Serve, ClientThatDiesInsideAPayload) {
  Session session;
  session.Posted(MmioWrite(0, 0, 100), std::vector<uint8_t>(100));
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(MmioWrite(0, 0, 100), std::vector<uint8_t>(60));
  talk.Leave();
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kLeftEarly);
  EXPECT_THAT(served.text, HasSubstr("went away while sending a payload"));
}

TEST(Serve, AbsurdPayloadIsNotAllocated) {
  Session session;
  session.Posted(MmioWrite(0, 0, 100), std::vector<uint8_t>(100));
  Recording recording(session);
  Conversation talk(recording.player, {});
  wire::RequestHeader header = MmioWrite(0, 0, UINT64_MAX);
  talk.Send(header, std::vector<uint8_t>(5000, 1));
  talk.Leave();
  EXPECT_EQ(talk.Result().kind, Served::Kind::kLeftEarly);
}

TEST(Serve, BigZeroPayloadIsComparedByItsZeros) {
  Session session(false);
  const uint64_t size = wire::kAppBulkLimit + 4096;
  trace::RequestRecord request;
  request.header = MmioWrite(0, 0, size);
  request.payload.size = size;
  request.payload.all_zero = true;
  session.writer().Request(request, session.now());
  session.Read4(5, 0, 1);
  session.Disconnect();
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(MmioWrite(0, 0, size), std::vector<uint8_t>(size));
  talk.Send(MmioRead(5, 0, 4));
  EXPECT_EQ(talk.Reply().status, 0);
  EXPECT_EQ(talk.Body(4), Le(1, 4));
  talk.Leave();
  const Served served = talk.Result();
  EXPECT_EQ(served.kind, Served::Kind::kFinished) << served.text;
}

TEST(Serve, UnansweredCallStaysUnanswered) {
  Session session;
  session.Connect();
  session.Unanswered(Header(wire::Command::kReset));
  session.Disconnect();
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(Header(wire::Command::kReset));
  uint8_t byte;
  EXPECT_EQ(ReceiveOnce(talk.fd(), {&byte, 1}, Deadline::In(milliseconds(100))).end,
            Transfer::End::kTimeout);
  talk.Leave();
  EXPECT_EQ(talk.Result().kind, Served::Kind::kFinished);
}

TEST(Serve, ProvesThatNothingRealIsThere) {
  Session session;
  session.Read4(5, 0, 1);
  session.Disconnect();
  Recording recording(session);
  Conversation talk(recording.player, {});
  talk.Send(ProofRequest());
  EXPECT_EQ(talk.Reply(), kProofReply);
  talk.Send(MmioRead(5, 0, 4));
  EXPECT_EQ(talk.Reply().status, 0);
  talk.Leave();
  EXPECT_EQ(talk.Result().kind, Served::Kind::kFinished);
}

TEST(Serve, StateAnswersInAnyOrderButNotTheUnseen) {
  Session session(false);
  session.Connect();
  session.Call(Header(wire::Command::kMapBar, 5), {0, 0x7000, 0x10'0000});
  session.Call(Header(wire::Command::kCfgRead, 0, 0, 4), {0, 0x744c1002, 0});
  session.Read4(5, 0x100, 1);
  session.Write4(5, 0x104, 7);
  session.Read4(5, 0x100, 2);  // call 5
  session.Read4(5, 0x100, 3);
  session.MapFd(0, 0x4000, 0x1'0000'0000);
  session.Memory(0, 0x100, Le(0xabcd, 4));
  session.Disconnect();
  {
    ShadowServer state(*session.Open(), 5);
    const Answer answer = state.OnRequest(Ask(MmioRead(5, 0x100, 4)));
    EXPECT_EQ(std::vector<uint8_t>(answer.body.begin(), answer.body.end()), Le(2, 4));
  }
  ShadowServer state(*session.Open(), 0);
  EXPECT_EQ(state.last_call(), 7u);
  state.Connect();
  Conversation talk(state, {});
  talk.Send(MmioRead(5, 0x100, 8));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 8, 0}));
  EXPECT_EQ(talk.Body(8), Le(0x7'0000'0003, 8));
  talk.Send(MmioWrite(5, 0x100, 4), Le(99, 4));
  talk.Send(MmioRead(5, 0x100, 4));
  talk.Reply();
  EXPECT_EQ(talk.Body(4), Le(99, 4));
  talk.Send(MmioRead(5, 0x108, 4));
  wire::ReplyHeader reply = talk.Reply();
  EXPECT_EQ(reply.status, 1);
  const std::vector<uint8_t> text = talk.Body(reply.resp0);
  EXPECT_EQ(std::string(text.begin(), text.end()),
            "rpcreplay: MMIO_READ bar5+0x108 4 bytes: not all of it was observed in the trace");
  talk.Send(Header(wire::Command::kCfgRead, 0, 2, 2));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 0x744c, 0}));
  talk.Send(Header(wire::Command::kMapBar, 5));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 0x7000, 0x10'0000}));
  talk.Send(Header(wire::Command::kMapSysmemFd, 0, 0x4000));
  EXPECT_EQ(talk.Reply(), (wire::ReplyHeader{0, 0x4000, 0}));
  ASSERT_EQ(talk.descriptors().size(), 1u);
  auto memory = SharedMemory::Map(std::move(talk.descriptors()[0]), 0x4000);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes()[0x100], 0xcd);
  EXPECT_EQ(memory->LoadTable(), (std::vector<DmaRange>{{0x1'0000'0000, 0x4000}}));
  talk.Leave();
  talk.Result();
  EXPECT_EQ(state.refused(), 1u);
}

TEST(Listen, ExistingFiles) {
  const TempDir dir;
  const auto address = *wire::ParseAddress(dir / "sock");
  {
    auto first = Listener::Open(address, false);
    ASSERT_TRUE(first) << first.error().message;
    struct stat status;
    ASSERT_EQ(stat((dir / "sock").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    const auto second = Listener::Open(address, false);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("--replace"));
    EXPECT_EQ(second.error().code, Error::Code::kUsage);
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "sock"));
  std::filesystem::create_directory(dir / "d");
  EXPECT_THAT(Listener::Open(*wire::ParseAddress(dir / "d"), true).error().message,
              HasSubstr("is no socket"));
  EXPECT_EQ(Listener::Open(*wire::ParseAddress(dir / "none/sock"), false).error().code,
            Error::Code::kNotFound);
}

TEST(Connect, NobodyThere) {
  const TempDir dir;
  const auto missing = Connect(*wire::ParseAddress(dir / "sock"), Soon());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Error::Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("cannot connect to unix:"));
}

}  // namespace
}  // namespace tg::replay
