// What the served trace's device does in the client's own memory. Packets are written down as
// dwords, after the SDMA 6.0 packet layouts.
#include "replay/serve/engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "replay/script/shared.h"
#include "schemas/amd/registers.h"
#include "tests/replay/session.h"
#include "tests/rings/hex.h"

namespace tg::replay {
namespace {

using namespace testing;
using test::Dwords;

constexpr uint64_t kRing = 0x10000000, kData = 0x80000000;
constexpr uint64_t kRingSize = 0x10000, kDataSize = 0x4000;  // 64 KiB: RB_SIZE 14

// Waits for [kData+0x1000] >= 1, copies 64 bytes from +0x2000 to +0x3000, signals 7 at +0x1040.
const char* const kPackets =
    "d0000008 80001000 00000000 00000001 ffffffff 0fff0004"
    "00000001 0000003f 00000000 80002000 00000000 80003000 00000000"
    "00030005 80001040 00000000 00000007";
constexpr uint64_t kPacketBytes = 17 * 4;

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : map_(amd::RegisterMap::Assumed()) {}

  void Begin() {
    session_.Connect();
    session_.Call(Header(wire::Command::kMapBar, 0), {0, 0x7f00'0000'0000, 256 << 20});
    session_.Call(Header(wire::Command::kMapBar, 2), {0, 0x7f10'0000'0000, 2 << 20});
    session_.Call(Header(wire::Command::kMapBar, 5), {0, 0x7f20'0000'0000, 1 << 20});
    session_.MapFd(0, kRingSize, kRing);
    session_.MapFd(1, kDataSize, kData);
    W("regSDMA0_QUEUE0_RB_RPTR", 0);
    W("regSDMA0_QUEUE0_RB_WPTR", 0);
    W("regSDMA0_QUEUE0_RB_BASE", kRing >> 8);
    W("regSDMA0_QUEUE0_RB_CNTL", 1 | 14 << 1);
  }
  void W(const char* name, uint32_t value) { session_.Write4(5, *map_.Find(name), value); }

  // Plays everything recorded up to now into an engine with a client's memory.
  void Start() {
    const std::vector<uint8_t> bytes = session_.Bytes();
    auto reader = trace::TraceReader::FromBytes(bytes);
    words_ = DeviceWords::Read(**reader);
    auto again = trace::TraceReader::FromBytes(bytes);
    engine_ = std::make_unique<Engine>(std::move(*again), words_);
    ring_ = std::make_unique<SharedMemory>(*SharedMemory::Create(kRingSize));
    data_ = std::make_unique<SharedMemory>(*SharedMemory::Create(kDataSize));
    engine_->SetRegion(0, ring_.get());
    engine_->SetRegion(1, data_.get());
  }
  void Put(SharedMemory& memory, uint64_t offset, const std::vector<uint8_t>& bytes) {
    std::memcpy(memory.bytes().data() + offset, bytes.data(), bytes.size());
  }
  uint32_t Get(uint64_t offset) {
    uint32_t value = 0;
    std::memcpy(&value, data_->bytes().data() + offset, 4);
    return value;
  }

  amd::RegisterMap map_;
  Session session_{false};
  DeviceWords words_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SharedMemory> ring_, data_;
};

TEST_F(EngineTest, CarriesOutTheClientsOwnPackets) {
  Begin();
  const uint64_t bell = session_.Doorbell(kPacketBytes);
  const uint64_t later = session_.Read4(5, 0x1000, 0);
  Start();
  Put(*ring_, 0, Dwords(kPackets));
  Put(*data_, 0x2000, Dwords("11111111 22222222"));
  engine_->Follow(bell - 1);
  EXPECT_EQ(engine_->Run(), 0u);
  EXPECT_EQ(engine_->packets(), 0u);
  engine_->Follow(bell);
  EXPECT_EQ(engine_->packets(), 3u);
  EXPECT_EQ(engine_->Run(), 0u) << "the poll does not hold yet";
  EXPECT_EQ(Get(0x1040), 0u);
  EXPECT_EQ(Get(0x3000), 0u);
  Put(*data_, 0x1000, Dwords("00000001"));
  EXPECT_GT(engine_->Run(), 0u);
  EXPECT_EQ(Get(0x3000), 0x11111111u);
  EXPECT_EQ(Get(0x3004), 0x22222222u);
  EXPECT_EQ(Get(0x1040), 7u);
  EXPECT_EQ(engine_->Run(), 0u) << "once is enough";
  // What it stored is its own: a copy of the proxy's must not undo it.
  EXPECT_TRUE(engine_->Keeps(1, 0x3000, 4));
  EXPECT_TRUE(engine_->Keeps(1, 0x1040, 4));
  EXPECT_FALSE(engine_->Keeps(1, 0x2000, 4));
  engine_->Follow(later);
  EXPECT_EQ(engine_->stuck_call(), 0u);
  EXPECT_EQ(engine_->unknown_bytes(), 0u);
}

TEST_F(EngineTest, RingWrapsAround) {
  Begin();
  const uint64_t first = session_.Doorbell(kRingSize - 24);
  const uint64_t second = session_.Doorbell(kRingSize - 24 + kPacketBytes);
  Start();
  engine_->Follow(first);  // NOPs
  const std::vector<uint8_t> packets = Dwords(kPackets);
  Put(*ring_, kRingSize - 24, {packets.begin(), packets.begin() + 24});
  Put(*ring_, 0, {packets.begin() + 24, packets.end()});
  Put(*data_, 0x1000, Dwords("00000002"));
  Put(*data_, 0x2000, Dwords("aaaaaaaa"));
  engine_->Follow(second);
  engine_->Run();
  EXPECT_EQ(Get(0x3000), 0xaaaaaaaau);
  EXPECT_EQ(Get(0x1040), 7u);
}

TEST_F(EngineTest, HangsWhereTheRecordingHung) {
  Begin();
  session_.Memory(0, 0, Dwords(kPackets));
  const uint64_t bell = session_.Doorbell(kPacketBytes);
  tinygpu::trace::Packet stall;
  stall.mutable_event()->set_kind(tinygpu::trace::SessionEvent::STALL);
  stall.mutable_event()->set_connection(1);
  session_.Append(stall);
  const uint64_t later = session_.Read4(5, 0x1000, 0);
  Start();
  ASSERT_NE(words_.Find(bell), nullptr);
  EXPECT_TRUE(words_.Find(bell)->stuck);
  Put(*ring_, 0, Dwords(kPackets));
  Put(*data_, 0x1000, Dwords("00000001"));
  engine_->Follow(later);
  engine_->Run();
  EXPECT_EQ(Get(0x1040), 0u);
  EXPECT_EQ(engine_->stuck_call(), bell);
}

TEST_F(EngineTest, RegionsThatAreGoneAreNotWritten) {
  Begin();
  const uint64_t bell = session_.Doorbell(kPacketBytes);
  Start();
  Put(*ring_, 0, Dwords(kPackets));
  Put(*data_, 0x1000, Dwords("00000001"));
  engine_->Follow(bell);
  engine_->SetRegion(1, nullptr);
  engine_->Run();
  EXPECT_EQ(Get(0x1040), 0u);
}

// A client may put anything into its ring. Bounded work, nothing outside its regions is touched.
TEST_F(EngineTest, AnyRingIsSurvived) {
  Begin();
  std::vector<uint64_t> bells;
  for (uint64_t i = 1; i <= 24; i++) bells.push_back(session_.Doorbell(i * 0x800));
  Start();
  std::mt19937 random(5);
  std::vector<uint8_t> ring(kRingSize);
  for (size_t i = 0; i < ring.size(); i++) {
    // Often a packet's header: opcodes 0 to 16 and the copies' and writes' sub-opcodes.
    if (i % 4 == 0)
      ring[i] = static_cast<uint8_t>(random() % 3 ? random() % 17 : random());
    else
      ring[i] = static_cast<uint8_t>(random() % 4 ? 0 : random());
    if (i % 4 == 3 && random() % 3 == 0) ring[i] = 0x80;  // an address in the data region
  }
  Put(*ring_, 0, ring);
  for (const uint64_t bell : bells) {
    engine_->Follow(bell);
    engine_->Run();
  }
  // Queue pointers past the ring, too.
  SUCCEED() << engine_->packets();
  EXPECT_GT(engine_->packets(), 100u);
}

}  // namespace
}  // namespace tg::replay
