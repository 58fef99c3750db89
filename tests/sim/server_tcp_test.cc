// serve.py's rules (protocol notes sections 3, 6, 7), on a socket pair: the protocol knows no
// transport.
#include "replay/sim/server_tcp.h"

#include <gtest/gtest.h>

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

class Tcp : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  void Start() { served = std::make_unique<Served>(protocol, *rig.gpu); }
  Peer& client() { return *served->client; }
  void Probe() {
    // (mask, device) pairs as tinygrad sends them for AMD
    std::vector<uint8_t> payload(16);
    StoreLe<uint32_t>(&payload[0], 0xffff);
    StoreLe<uint32_t>(&payload[4], 0x74a1);
    StoreLe<uint32_t>(&payload[8], 0xffff);
    StoreLe<uint32_t>(&payload[12], 0x744c);
    client().Send(kProbe, 0, 0, 16, 0x1002, payload);
    const auto reply = client().Reply();
    EXPECT_EQ(reply, (wire::ReplyHeader{0, 14, 1}));
    EXPECT_EQ(client().Text(14), "0000:03:00.0:0");
  }
  void Refused(const std::string& text) {
    const auto reply = client().Reply();
    EXPECT_EQ(reply.status, 1);
    EXPECT_EQ(client().Text(reply.resp0), text);
  }

  Rig rig;
  sim::TcpProtocol protocol{*rig.gpu};
  std::unique_ptr<Served> served;
};

TEST_F(Tcp, PingNeedsNoDevice) {
  client().Send(kPing, 0, 0, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
}

TEST_F(Tcp, ProbeFiltersByVendorDeviceAndClass) {
  std::vector<uint8_t> other(8);
  StoreLe<uint32_t>(&other[0], 0xffff);
  StoreLe<uint32_t>(&other[4], 0x2b85);
  client().Send(kProbe, 0, 0, 8, 0x1002, other);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  StoreLe<uint32_t>(&other[4], 0x744c);
  client().Send(kProbe, 0, 0, 8, 0x10de, other);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  client().Send(kProbe, 0, 2, 8, 0x1002, other);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
  client().Send(kProbe, 0, 3, 8, 0x1002, other);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 14, 1}));
  client().Text(14);
}

TEST_F(Tcp, DevicesMustBeProbed) {
  client().Send(kMapBar, 0, 0, 0);
  Refused("device 0 not probed");
  Probe();
  client().SendRaw(wire::EncodeRequest({kMapBar, 7, 0, 0, 0, 0}));
  Refused("device 7 not probed");
  client().Send(kMapBar, 5, 0, 0);
  const auto reply = client().Reply();
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.resp1, 1u << 20);
  EXPECT_EQ(reply.resp0, rig.gpu->BarAddress(5));
  // What was handed out stays so for the next client, as do mapped BARs.
  served->Join();
  Start();
  client().Send(kMmioRead, 5, 0x378c, 4);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 4, 0}));
  EXPECT_EQ(LoadLe<uint32_t>(client().Receive(4).data()), 24560u);
}

TEST_F(Tcp, ErrorTexts) {
  Probe();
  client().Send(kMmioRead, 2, 0, 4);
  Refused("(0, 2)");
  client().Send(kMapSysmemFd, 0, 0x1000, 0);
  Refused("unknown command 2");
  client().Send(99, 0, 0, 0);
  Refused("unknown command 99");
  client().Send(kSysmemRead, 5, 0, 4);
  Refused("list index out of range");
  client().Send(kMapSysmem, 0, 4 << 20, 1);
  Refused("Contiguous allocation is only supported for sizes up to 2MB");
}

TEST_F(Tcp, HeadersMayComeInPieces) {
  const auto header = wire::EncodeRequest({kPing, 0, 0, 0, 0, 0});
  client().SendRaw(std::span(header).first(5));
  client().SendRaw(std::span(header).subspan(5));
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 0, 0}));
}

TEST_F(Tcp, SysmemGivesOneAddressPerPage) {
  Probe();
  client().Send(kMapSysmem, 0, 3 << 20, 0);
  const auto reply = client().Reply();
  EXPECT_EQ(reply, (wire::ReplyHeader{0, 768 * 8, 0}));
  const auto body = client().Receive(768 * 8);
  ASSERT_EQ(body.size(), 768u * 8);
  const uint64_t first = LoadLe<uint64_t>(&body[0]);
  EXPECT_EQ(LoadLe<uint64_t>(&body[8]), first + 0x1000);
  EXPECT_NE(LoadLe<uint64_t>(&body[512 * 8]), first + 512 * 0x1000);  // scattered

  const std::vector<uint8_t> data = Pattern(5000, 1);
  client().Send(kSysmemWrite, 0, 0x1ff000, data.size(), 0, data);
  client().Send(kSysmemRead, 0, 0x1ff000, data.size());
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, data.size(), 0}));
  EXPECT_TRUE(client().Receive(data.size()) == data);
  EXPECT_EQ(*rig.gpu->host().At(first + 0x1ff000).data, data[0]);

  client().Send(kMapSysmem, 0, 0x1000, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 8, 1}));
  client().Receive(8);
  // Handles go on counting with the next client.
  served->Join();
  Start();
  client().Send(kMapSysmem, 0, 0x1000, 0);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 8, 2}));
}

TEST_F(Tcp, ReadPastTheEndAnnouncesMoreThanItSends) {
  Probe();
  client().Send(kMapSysmem, 0, 0x1000, 0);
  client().Reply();
  client().Receive(8);
  client().Send(kSysmemRead, 0, 0xff0, 32);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 32, 0}));
  EXPECT_EQ(client().Receive(16).size(), 16u);
  EXPECT_TRUE(client().Silent(100));
  client().Send(kMapBar, 5, 0, 0);
  client().Reply();
  client().Send(kMmioRead, 5, (1 << 20) - 6, 16);
  EXPECT_EQ(client().Reply(), (wire::ReplyHeader{0, 16, 0}));
  EXPECT_EQ(client().Receive(6).size(), 6u);
  EXPECT_TRUE(client().Silent(100));
}

TEST_F(Tcp, FailedWriteEndsTheSessionWithoutAWord) {
  Probe();
  const uint8_t value[4] = {};
  client().Send(kMmioWrite, 5, 0, 4, 0, value);  // BAR not mapped
  // On the pair the test's server closes; the real one leaves the socket to the next accept.
  EXPECT_TRUE(client().Closed());
  EXPECT_EQ(served->Join(), sim::SessionEnd::kAbandoned);
  EXPECT_EQ(protocol.stats().writes_dropped, 1u);
}

TEST_F(Tcp, ResizeIsRefusedWhereTheHostHasNoRoom) {
  Probe();
  client().Send(kResizeBar, 0, 0, 0);
  EXPECT_EQ(client().Reply().status, 0);
  Rig small("navi31", sim::kSmallBar0);
  sim::TcpProtocol other(*small.gpu);
  Served pair(other, *small.gpu);
  std::vector<uint8_t> any(8);
  pair.client->Send(kProbe, 0, 0, 8, 0x1002, any);
  pair.client->Receive(17 + 14);
  pair.client->Send(kResizeBar, 0, 0, 0);
  EXPECT_EQ(pair.client->Reply().status, 1);
}

TEST_F(Tcp, AnnouncedSizesCostNothing) {
  Probe();
  client().SendRaw(wire::EncodeRequest({kSysmemWrite, 0, 0, 0, 1ull << 50, 0}));
  EXPECT_TRUE(client().Closed());
  served->Join();
  EXPECT_EQ(protocol.stats().poison, 1u);
}

}  // namespace
}  // namespace tg::test
