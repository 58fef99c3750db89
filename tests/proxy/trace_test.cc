// What ends up in the trace: body policies, durability, a sink without space.
#include <gtest/gtest.h>
#include <sys/socket.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <optional>

#include "tests/proxy/rig.h"
#include "tests/wire/hex.h"

namespace tg::proxy::test {
namespace {

using wire::Command;

// A sink over memory that can run out of space and counts what is forced to the disk.
struct TestSink : trace::Sink {
  struct State {
    std::atomic<int> syncs{0};
    std::atomic<bool> full{false};
  };
  TestSink(std::shared_ptr<State> shared, std::unique_ptr<trace::Sink> below)
      : state(std::move(shared)), file(std::move(below)) {}
  Result<std::span<uint8_t>> Map(uint64_t offset, size_t size) override {
    if (state->full) return Fail(Error::Code::kNoSpace, "no space left on device");
    return file->Map(offset, size);
  }
  void Unmap(std::span<uint8_t> segment) override { file->Unmap(segment); }
  Result<void> Sync(std::span<uint8_t> dirty) override {
    state->syncs++;
    return file->Sync(dirty);
  }
  Result<void> Truncate(uint64_t size) override { return file->Truncate(size); }

  std::shared_ptr<State> state;
  std::unique_ptr<trace::Sink> file;
};

struct SinkRig {
  explicit SinkRig(StubServer::Handler handler, SessionOptions session) {
    server = std::make_unique<StubServer>(UnixAt(dir / "server.sock"), std::move(handler));
    ProxyRig::Options options;
    options.listen = UnixAt(dir / "proxy.sock");
    options.upstream = server->address();
    options.proxy.session = session;
    options.segment_size = 1 << 20;
    auto file = trace::OpenFileSink(dir / "trace.pb", true);
    options.sink = std::make_unique<TestSink>(state, std::move(*file));
    proxy = std::make_unique<ProxyRig>(dir, std::move(options));
  }
  TempDir dir;
  std::shared_ptr<TestSink::State> state = std::make_shared<TestSink::State>();
  std::unique_ptr<StubServer> server;
  std::unique_ptr<ProxyRig> proxy;
};

TEST(Trace, BodyPolicies) {
  const Bytes big = Pattern(6000), zeros(9000), small = Pattern(4096);
  for (const BodyPolicy policy : {BodyPolicy::kFull, BodyPolicy::kHead, BodyPolicy::kHash}) {
    Chain chain({}, {.bodies = policy});
    Client client(chain.proxy->address());
    for (const Bytes& payload : {big, zeros, small}) ASSERT_TRUE(client.Send(Write(0, 0, payload)));
    ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 5, 9, 20000)));
    EXPECT_EQ(client.Recv(17 + 20000), Reply(0, 20000) + Pattern(20000, 9));
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    ASSERT_EQ(trace.calls.size(), 4u);
    const size_t kept = policy == BodyPolicy::kFull ? 6000 : policy == BodyPolicy::kHead ? 256 : 0;
    EXPECT_EQ(trace.calls[0].payload, Bytes(big.begin(), big.begin() + static_cast<long>(kept)));
    EXPECT_EQ(trace.calls[0].payload_size, 6000u);
    EXPECT_EQ(trace.calls[2].payload, small);
    EXPECT_EQ(trace.calls[3].body_size, 20000u);
    const Bytes body = Pattern(20000, 9);
    const size_t body_kept = kept == 6000 ? 20000 : kept;
    ASSERT_EQ(trace.WholeBody(4).size(), body_kept) << BodyPolicyName(policy);
    EXPECT_EQ(trace.WholeBody(4), Bytes(body.begin(), body.begin() + static_cast<long>(body_kept)));
  }
}

// Rings and indirect buffers of a TCP client.
TEST(Trace, SysmemWritesAreWholeUpTo64KiB) {
  const Bytes ring = Pattern(64 * 1024), more = Pattern(64 * 1024 + 1);
  for (const BodyPolicy policy : {BodyPolicy::kHead, BodyPolicy::kHash}) {
    Chain chain({}, {.bodies = policy});
    Client client(chain.proxy->address());
    for (const Bytes& payload : {ring, more}) {
      ASSERT_TRUE(client.Send(Request(Command::kSysmemWrite, 3, 0x100, payload.size()) + payload));
    }
    client.Close();
    const Decoded trace = chain.proxy->Finish();
    ASSERT_EQ(trace.calls.size(), 2u);
    const bool head = policy == BodyPolicy::kHead;
    EXPECT_EQ(trace.calls[0].payload, head ? ring : Bytes()) << BodyPolicyName(policy);
    EXPECT_EQ(trace.calls[1].payload.size(), head ? 256u : 0u);
    EXPECT_EQ(trace.calls[1].payload_size, more.size());
  }
}

TEST(Trace, HashesAndZeroFlagsAreThoseOfTheBytes) {
  const Bytes big = Pattern(3 << 20), zeros(2 << 20), middle = Pattern(100000, 4), few(9000);
  Bytes late(3 << 20);  // zeros to the last byte but one: counted, then hashed after all
  late[late.size() - 2] = 1;
  Chain chain;
  Client client(chain.proxy->address());
  for (const Bytes& payload : {big, zeros, middle, few, late})
    ASSERT_TRUE(client.Send(Write(0, 0, payload)));
  ASSERT_TRUE(client.Send(Request(Command::kMmioRead, 5, 9, 3 << 20)));
  ASSERT_EQ(client.Recv(17 + (3 << 20)).size(), 17u + (3 << 20));
  client.Close();
  chain.proxy->Finish();
  auto reader = trace::TraceReader::Open(chain.proxy->trace_path());
  ASSERT_TRUE(reader.has_value());
  trace::Record record;
  std::vector<std::pair<std::optional<uint64_t>, bool>> found;  // hash, all zero
  while ((*reader)->Next(record)) {
    if (record.kind == trace::Record::Kind::kRequest && !record.request.payload.streamed &&
        record.request.payload.size > 0)
      found.emplace_back(record.request.payload.xxh3, record.request.payload.all_zero);
    if (record.kind == trace::Record::Kind::kPacket && record.packet->has_chunk() &&
        record.packet->chunk().last()) {
      const auto& chunk = record.packet->chunk();
      found.emplace_back(chunk.has_xxh3() ? std::optional<uint64_t>(chunk.xxh3()) : std::nullopt,
                         chunk.all_zero());
    }
  }
  const Bytes body = Pattern(3 << 20, 9);
  const std::vector<std::pair<std::optional<uint64_t>, bool>> expected = {
      {XXH3_64bits(big.data(), big.size()), false},
      {std::nullopt, true},
      {XXH3_64bits(middle.data(), middle.size()), false},
      {std::nullopt, true},
      {XXH3_64bits(late.data(), late.size()), false},
      {XXH3_64bits(body.data(), body.size()), false}};
  EXPECT_EQ(found, expected);
}

TEST(Trace, MachineDurabilityForcesSideEffectsToDiskFirst) {
  std::vector<int> syncs_at;
  std::shared_ptr<TestSink::State> state;
  SinkRig rig(
      [&](int fd, StubServer& server) {
        while (const auto request = server.Next(fd)) {
          syncs_at.push_back(state->syncs);
          if (request->header.command != 7) (void)Send(fd, Reply(0));
        }
      },
      {.machine_durability = true});
  state = rig.state;
  {
    Client client(rig.proxy->address());
    ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));  // harmless: no sync
    EXPECT_EQ(client.Recv(17), Reply(0));
    const int before = rig.state->syncs;
    ASSERT_TRUE(client.Send(Request(Command::kReset)));
    EXPECT_EQ(client.Recv(17), Reply(0));
    ASSERT_TRUE(client.Send(Write(2, 0x800, Pattern(8))));
    ASSERT_TRUE(rig.server->WaitFor(3));
    ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
    EXPECT_EQ(client.Recv(17), Reply(0));
    client.Close();
    rig.proxy->Finish();
    ASSERT_EQ(syncs_at.size(), 4u);
    EXPECT_EQ(syncs_at[0], before);
    EXPECT_EQ(syncs_at[1], before + 1);  // forced before the server saw it
    EXPECT_EQ(syncs_at[2], before + 2);
    EXPECT_EQ(syncs_at[3], before + 2);
  }
}

TEST(Trace, WithoutSpaceTrafficGoesOnAndComesBack) {
  SinkRig rig({}, {.bodies = BodyPolicy::kFull});
  Client client(rig.proxy->address());
  const auto round = [&](int count) {
    for (int i = 0; i < count; i++) {
      ASSERT_TRUE(client.Send(Write(0, 0, Pattern(200000))));
      ASSERT_TRUE(client.Send(Request(Command::kCfgRead, 0, 0, 4)));
      ASSERT_EQ(client.Recv(17), Reply(0, 0x744c1002));
    }
  };
  round(4);
  rig.state->full = true;
  round(40);
  EXPECT_TRUE(rig.proxy->WaitLog("traffic goes on unrecorded"));
  rig.state->full = false;
  // Recording is tried again from time to time.
  EXPECT_TRUE(Eventually(
      [&] {
        round(1);
        return rig.proxy->CountLog("the trace is written again") > 0;
      },
      15000));
  const size_t sent = rig.server->count();
  client.Close();
  const Decoded trace = rig.proxy->Finish();
  EXPECT_EQ(trace.end_state, trace::EndState::kClean);
  ASSERT_NE(trace.End(), nullptr);
  EXPECT_EQ(trace.End()->calls(), sent);
  ASSERT_EQ(trace.End()->losses_size(), 1);
  EXPECT_EQ(trace.End()->losses(0).cause(), tinygpu::trace::Loss::DISK_FULL);
  EXPECT_EQ(trace.End()->losses(0).calls(), trace.lost_calls);
  EXPECT_GT(trace.lost_calls, 20u);
}

}  // namespace
}  // namespace tg::proxy::test
