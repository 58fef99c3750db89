// TinyGPU.app's rules, byte by byte (protocol notes sections 2 to 7).
#include "replay/sim/server_app.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

#include "tests/sim/peer.h"
#include "tests/sim/rig.h"

namespace tg::test {
namespace {

enum : uint8_t {
  kProbe,
  kMapBar,
  kMapSysmemFd,
  kCfgRead,
  kCfgWrite,
  kReset,
  kMmioRead,
  kMmioWrite,
  kMapSysmem,
  kSysmemRead,
  kSysmemWrite,
  kResizeBar,
  kPing
};

class App : public testing::Test {
 protected:
  void Start() { served = std::make_unique<Served>(protocol, *rig.gpu); }
  Peer& client() { return *served->client; }
  void SetUp() override { Start(); }
  void Map(uint32_t bar) {
    client().Send(kMapBar, bar, 0, 0);
    EXPECT_EQ(client().Reply().status, 0);
  }
  uint32_t Register(uint64_t byte) {
    client().Send(kMmioRead, 5, byte, 4);
    EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 4, 0}));
    const auto body = client().Receive(4);
    return body.size() == 4 ? LoadLe<uint32_t>(body.data()) : 0;
  }

  Rig rig;
  sim::AppProtocol protocol{*rig.gpu};
  std::unique_ptr<Served> served;
};

TEST_F(App, MapBarGivesAddressAndSize) {
  const std::pair<uint32_t, uint64_t> bars[] = {{0, 32ull << 30}, {2, 2 << 20}, {5, 1 << 20}};
  for (const auto& [bar, size] : bars) {
    client().Send(kMapBar, bar, 0, 0);
    const auto reply = client().Reply();
    EXPECT_EQ(reply.status, 0);
    EXPECT_EQ(reply.resp1, size);
    EXPECT_GT(reply.resp0, size);  // an address in the server's process
    EXPECT_EQ(wire::RevisionFromMapBar(reply), wire::Revision::kR2);
  }
  for (uint32_t bar : {1u, 3u, 4u, 6u, 256u, 0xffffffffu}) {
    client().Send(kMapBar, bar, 0, 0);
    EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0})) << bar;
  }
}

TEST_F(App, ReadsNeedAMappedBar) {
  client().Send(kMmioRead, 5, 0x378c, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  Map(5);
  EXPECT_EQ(Register(0x378c), 24560u);
}

TEST_F(App, WritesArePostedAndInvalidOnesVanish) {
  Map(5);
  const uint8_t value[4] = {0x44, 0x33, 0x22, 0x11};
  client().Send(kMmioWrite, 5, 0x3011c, 4, 0, value);        // SCRATCH_REG7
  client().Send(kMmioWrite, 5, 1 << 20, 4, 0, value);        // behind the BAR
  client().Send(kMmioWrite, 5, (1 << 20) - 2, 4, 0, value);  // across its end
  client().Send(kMmioWrite, 2, 0, 4, 0, value);              // BAR not mapped
  client().Send(kMmioWrite, 5, 0, 0);                        // no bytes at all
  EXPECT_EQ(Register(0x3011c), 0x11223344u);
  client().Send(kMmioRead, 5, (1 << 20) - 2, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  served->Join();
  EXPECT_EQ(protocol.stats().writes_dropped, 3u);
  EXPECT_EQ(protocol.stats().requests[kMmioWrite], 5u);
}

TEST_F(App, HeaderMustComeInOnePiece) {
  const auto header = wire::EncodeRequest({kCfgRead, 0, 0, 0, 4, 0});
  client().SendRaw(std::span(header).first(32));
  EXPECT_TRUE(client().Closed());
  served->Join();
  EXPECT_EQ(protocol.stats().short_headers, 1u);
}

TEST_F(App, SeveralMessagesInOneSendAreFine) {
  Map(5);
  std::vector<uint8_t> both;
  for (int i = 0; i < 2; i++) {
    const auto header = wire::EncodeRequest({kCfgRead, 0, 0, 0, 4, 0});
    both.insert(both.end(), header.begin(), header.end());
  }
  client().SendRaw(both);
  for (int i = 0; i < 2; i++) EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0x744c1002, 0}));
}

TEST_F(App, PayloadMayComeInPieces) {
  Map(0);
  const std::vector<uint8_t> data = Pattern(100'000, 5);
  const auto header = wire::EncodeRequest({kMmioWrite, 0, 0, 0x4000'0000, data.size(), 0});
  client().SendRaw(header);
  for (size_t at = 0; at < data.size(); at += 9999)
    client().SendRaw(std::span(data).subspan(at, std::min<size_t>(9999, data.size() - at)));
  client().Send(kMmioRead, 0, 0x4000'0000, data.size());
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, data.size(), 0}));
  EXPECT_TRUE(client().Receive(data.size()) == data);
}

TEST_F(App, CutPayloadIsCopiedInFullWithStaleBytes) {
  Map(0);
  const std::vector<uint8_t> old(16, 0xaa), cut(4, 0xbb);
  client().Send(kMmioWrite, 0, 0x4000'0000, 16, 0, old);
  client().Send(kMmioWrite, 0, 0x5000'0000, 16, 0, cut);
  served->Join();
  std::vector<uint8_t> there(16);
  rig.gpu->BarRead(0, 0x5000'0000, there);
  std::vector<uint8_t> expected(16, 0xaa);
  std::fill(expected.begin(), expected.begin() + 4, 0xbb);
  EXPECT_TRUE(there == expected);
}

TEST_F(App, BulkLimitIs64MiB) {
  Map(0);
  client().Send(kMmioRead, 0, 0, (64 << 20) + 1);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  client().Send(kMmioRead, 0, 0, 64 << 20);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 64 << 20, 0}));
  EXPECT_EQ(client().Receive(64 << 20).size(), 64u << 20);
  // A longer write would run over the end of the real server's buffer; here it is dropped.
  const auto header = wire::EncodeRequest({kMmioWrite, 0, 0, 0, (64 << 20) + 4096, 0});
  client().SendRaw(header);
  const std::vector<uint8_t> piece(1 << 20, 0x77);
  for (int i = 0; i < 64; i++) client().SendRaw(piece);
  client().SendRaw(std::span(piece).first(4096));
  client().Send(kMmioRead, 0, 0, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 4, 0}));
  EXPECT_EQ(LoadLe<uint32_t>(client().Receive(4).data()), 0u);
  served->Join();
  EXPECT_EQ(protocol.stats().poison, 1u);
}

TEST_F(App, RangesThatTheRealServerLetsThroughAreCaught) {
  Map(0);
  const uint8_t value[4] = {1, 2, 3, 4};
  client().Send(kMmioWrite, 256, 0, 4, 0, value);
  client().Send(kMmioWrite, 0, UINT64_MAX - 1, 4, 0, value);
  client().Send(kMmioRead, 0, UINT64_MAX - 3, 8);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  client().Send(kMmioRead, 0x100, 0, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  served->Join();
  EXPECT_EQ(protocol.stats().poison, 4u);
  EXPECT_EQ(protocol.stats().writes_dropped, 2u);
}

TEST_F(App, SysmemComesWithADescriptorAndItsAddressTable) {
  // Asked 5 MiB: three segments of at most 2 MiB.
  client().Send(kMapSysmemFd, 0, 5 << 20, 1);
  const auto [reply, fd] = client().ReplyWithDescriptor();
  EXPECT_EQ(reply, (wire::ReplyHeader{0, 5 << 20, 0}));
  ASSERT_GE(fd, 0);
  struct stat file = {};
  ASSERT_EQ(fstat(fd, &file), 0);
  EXPECT_EQ(file.st_size, 5 << 20);
  auto* data =
      static_cast<uint8_t*>(mmap(nullptr, 5 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(data, MAP_FAILED);
  uint64_t covered = 0;
  size_t pairs = 0;
  for (; LoadLe<uint64_t>(data + 16 * pairs + 8) != 0; pairs++)
    covered += LoadLe<uint64_t>(data + 16 * pairs + 8);
  EXPECT_EQ(pairs, 3u);
  EXPECT_EQ(covered, 5u << 20);
  // What the client writes, the card reads at the DMA address.
  data[0x300000] = 0x5a;
  const uint64_t second = LoadLe<uint64_t>(data + 16);
  EXPECT_EQ(*rig.gpu->host().At(second + 0x100000).data, 0x5a);
  // A round trip orders this look before what the server does when the client is gone.
  client().Send(kCfgRead, 0, 0, 4);
  EXPECT_EQ(client().Reply().status, 0);
  munmap(data, 5 << 20);
  close(fd);
  served->Join();
  EXPECT_EQ(rig.gpu->host().segments(), 0u);
}

TEST_F(App, RegionsHaveAMinimumAndAreNumbered) {
  for (uint64_t i = 0; i < 3; i++) {
    client().Send(kMapSysmemFd, 0, i * 0x1800, 0);
    const auto [reply, fd] = client().ReplyWithDescriptor();
    EXPECT_EQ(reply, (wire::ReplyHeader{0, 0x4000, i}));
    close(fd);
  }
}

TEST_F(App, NoMoreThan128RegionsPerClient) {
  for (uint64_t i = 0; i < 128; i++) {
    client().Send(kMapSysmemFd, 0, 0x1000, 0);
    const auto [reply, fd] = client().ReplyWithDescriptor();
    ASSERT_EQ(reply.resp1, i);
    close(fd);
  }
  client().Send(kMapSysmemFd, 0, 0x1000, 0);
  const auto [refused, none] = client().ReplyWithDescriptor();
  EXPECT_EQ(refused, (wire::ReplyHeader{1, 0, 0}));
  EXPECT_EQ(none, -1);
  // They end with the client.
  served->Join();
  Start();
  client().Send(kMapSysmemFd, 0, 0x1000, 0);
  const auto [again, fd] = client().ReplyWithDescriptor();
  EXPECT_EQ(again, (wire::ReplyHeader{0, 0x4000, 0}));
  close(fd);
}

TEST_F(App, AbsurdRegionSizesAreRefused) {
  for (uint64_t size : {uint64_t{UINT64_MAX}, uint64_t{UINT64_MAX - 0xfff}, uint64_t{1} << 50}) {
    client().Send(kMapSysmemFd, 0, size, 0);
    const auto [reply, fd] = client().ReplyWithDescriptor();
    EXPECT_EQ(reply, (wire::ReplyHeader{1, 0, 0}));
    EXPECT_EQ(fd, -1);
  }
}

TEST_F(App, ConfigurationSpace) {
  client().Send(kCfgRead, 0, 0, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0x744c1002, 0}));
  client().Send(kCfgWrite, 0, 4, 2, 6);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  client().Send(kCfgRead, 0, 4, 2);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 6, 0}));
  // Another size succeeds and does nothing.
  client().Send(kCfgRead, 0, 0, 3);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  client().Send(kCfgWrite, 0, 4, 8, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  client().Send(kCfgRead, 0, 4, 2);
  EXPECT_EQ(client().Reply().resp0, 6u);
}

TEST_F(App, ResizeDoesNothingResetDoes) {
  Map(5);
  const uint8_t value[4] = {1, 0, 0, 0};
  client().Send(kMmioWrite, 5, 0x30118, 4, 0, value);
  client().Send(kResizeBar, 0, 0, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  EXPECT_EQ(Register(0x30118), 1u);
  client().Send(kReset, 0, 0, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  EXPECT_EQ(Register(0x30118), 0u);
}

TEST_F(App, UnknownCommandsAreRefusedAndTheirPayloadIsTakenForHeaders) {
  for (uint8_t command : std::initializer_list<uint8_t>{kMapSysmem, kSysmemRead, kPing, 13, 255}) {
    client().Send(command, 0, 0, 0);
    EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0})) << int{command};
  }
  // PROBE with 64 bytes: they are read as a header (refused) and 31 bytes more (hung up).
  const std::vector<uint8_t> payload(64, 0xff);
  client().Send(kProbe, 0, 0, 64, 0x1002, payload);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
  EXPECT_TRUE(client().Closed());
}

TEST_F(App, BarsAreMappedPerClient) {
  Map(5);
  served->Join();
  Start();
  client().Send(kMmioRead, 5, 0, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
}

TEST_F(App, EnginesGoOnWhileTheServerWaits) {
  served->Join();
  client::Session& session = rig.Open();
  const auto page = session.MapHost(0x1000).value();
  const uint32_t packets[] = {
      0xd0000008, Low(page.va),     High(page.va), 1, 0xffffffff, 0x0fff0004,
      0x00030005, Low(page.va + 8), High(page.va), 7};
  ASSERT_TRUE(session.SubmitSdma(packets));
  // Shared with the server's thread, as it is with another process: atomic accesses.
  uint8_t* memory = rig.gpu->host().At(page.memory->pages().front()).data;
  const auto word = [memory](uint64_t offset) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(memory + offset));
  };
  Start();
  // Nobody sends anything: the host's write alone has to be seen.
  word(0).store(1);
  for (int i = 0; i < 10'000 && word(8).load() != 7; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(word(8).load(), 7u);
}

// ---- --hang on requests
// --------------------------------------------------------------------------

TEST_F(App, RefusalWithAndWithoutText) {
  rig.Hang("refuse:MAP_BAR:BAR is taken:after=1:count=1");
  rig.Hang("refuse:RESET");
  Map(5);
  client().Send(kMapBar, 5, 0, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 12, 0}));
  EXPECT_EQ(client().Text(12), "BAR is taken");
  Map(5);
  client().Send(kReset, 0, 0, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{1, 0, 0}));
}

TEST_F(App, RefusedWriteIsDropped) {
  rig.Hang("refuse:MMIO_WRITE:count=1");
  Map(5);
  const uint8_t value[4] = {7, 0, 0, 0};
  client().Send(kMmioWrite, 5, 0x30118, 4, 0, value);
  EXPECT_EQ(Register(0x30118), 0u);
  client().Send(kMmioWrite, 5, 0x30118, 4, 0, value);
  EXPECT_EQ(Register(0x30118), 7u);
}

TEST_F(App, CardFallsOffTheBus) {
  rig.Hang("all-ones:after=2:count=2");
  Map(5);
  EXPECT_EQ(Register(0x378c), 24560u);
  EXPECT_EQ(Register(0x378c), 0xffffffffu);
  client().Send(kCfgRead, 0, 0, 4);
  EXPECT_EQ(client().Reply().resp0, 0xffffffffu);
  EXPECT_EQ(Register(0x378c), 24560u);
}

TEST_F(App, ServerEndsWithoutAReply) {
  rig.Hang("exit:after=1");
  Map(5);
  client().Send(kMapBar, 5, 0, 0);
  EXPECT_TRUE(client().Closed());
  EXPECT_EQ(served->Join(), sim::SessionEnd::kExit);
}

TEST_F(App, SlowServer) {
  rig.Hang("slow:100000:count=1");
  const auto began = std::chrono::steady_clock::now();
  Map(5);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(100));
}

}  // namespace
}  // namespace tg::test
