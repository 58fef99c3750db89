// What the live model costs, and that it still knows the rings when very much has passed it.
#include "proxy/capture/follower.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "schemas/amd/registers.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

using wire::Command;

// A client over TCP, where memory crosses the wire.
class FollowerTest : public ::testing::Test {
 protected:
  void Request(Command command, uint32_t bar, uint64_t arg0, uint64_t arg1,
               std::span<const uint8_t> data) {
    Handed record;
    record.kind = Handed::Kind::kRequest;
    record.call = ++call_;
    record.now = call_ * 1000;
    record.header = {.command = static_cast<uint8_t>(command),
                     .dev = 0,
                     .bar = bar,
                     .arg0 = arg0,
                     .arg1 = arg1,
                     .arg2 = 0};
    record.size = data.size();
    record.data = data;
    follower_.Handle(record);
  }
  void Write(uint32_t bar, uint64_t offset, uint64_t value, size_t size) {
    std::array<uint8_t, 8> bytes;
    StoreLe(bytes.data(), value);
    Request(Command::kMmioWrite, bar, offset, size, std::span(bytes).first(size));
  }
  void Memory(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) {
    Request(Command::kSysmemWrite, region, offset, bytes.size(), bytes);
  }
  void Register(const char* name, uint32_t value) { Write(5, *map_.Find(name), value, 4); }
  void MapRegion(uint32_t index, uint64_t size) {
    std::vector<uint8_t> list(size / 4096 * 8);
    for (size_t page = 0; page * 8 < list.size(); page++)
      StoreLe<uint64_t>(&list[page * 8], Address(index) + page * 4096);
    Request(Command::kMapSysmem, 0, size, 0, {});
    Handed record;
    record.kind = Handed::Kind::kReply;
    record.call = call_;
    record.now = call_ * 1000;
    record.header.command = static_cast<uint8_t>(Command::kMapSysmem);
    record.header.arg0 = size;
    record.reply = {.status = 0, .resp0 = list.size(), .resp1 = index};
    record.size = list.size();
    for (; record.offset < list.size(); record.offset += record.data.size()) {
      record.data = std::span(list).subspan(
          record.offset, std::min<size_t>(list.size() - record.offset, kHandedBytes));
      follower_.Handle(record);
      record.kind = Handed::Kind::kReplyChunk;
    }
  }
  static uint64_t Address(uint32_t region) { return 0x10000000ull + region * 0x10000000ull; }

  void SetUpSdma() {
    MapRegion(0, 0x10000);
    MapRegion(1, 0x4000);
    MapRegion(2, 64 << 20);
    Register("regSDMA0_QUEUE0_RB_WPTR", 0);
    Register("regSDMA0_QUEUE0_RB_WPTR_HI", 0);
    Register("regSDMA0_QUEUE0_RB_BASE", static_cast<uint32_t>(Address(0) >> 8));
    Register("regSDMA0_QUEUE0_RB_BASE_HI", 0);
    Register("regSDMA0_QUEUE0_RB_RPTR_ADDR_LO", static_cast<uint32_t>(Address(1)) + 0x80);
    Register("regSDMA0_QUEUE0_RB_RPTR_ADDR_HI", 0);
    Register("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO", static_cast<uint32_t>(Address(1)) + 0x38);
    Register("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI", 0);
    Register("regSDMA0_QUEUE0_DOORBELL_OFFSET", 512u << 2);
    Register("regSDMA0_QUEUE0_RB_CNTL", 1u | 14u << 1);
  }
  // Signal n: 16 bytes.
  void Submit(uint32_t n) {
    std::array<uint8_t, 16> packet;
    StoreLe<uint32_t>(&packet[0], 0x00030005u);
    StoreLe<uint64_t>(&packet[4], Address(1) + 0xff0);
    StoreLe<uint32_t>(&packet[12], n);
    Memory(0, put_ % 0x10000, packet);
    put_ += packet.size();
    std::array<uint8_t, 8> word;
    StoreLe<uint64_t>(word.data(), put_);
    Memory(1, 0x38, word);
    Write(2, 0x800, put_, 8);
  }
  uint64_t Held() const {
    uint64_t held = follower_.device().vram().held_bytes();
    for (const auto& [index, region] : follower_.device().sysmem().regions())
      held += region.shadow.held_bytes();
    return held;
  }

  const amd::RegisterMap map_ = amd::RegisterMap::Assumed();
  Follower follower_{{.copy = {},
                      .append = [](tinygpu::trace::Packet&) {},
                      .say = [](bool, const std::string&) {}},
                     1,
                     false};
  uint64_t call_ = 0, put_ = 0;
};

TEST_F(FollowerTest, StaysSmallAndKnowsTheRingsHoweverMuchPasses) {
  SetUpSdma();
  std::vector<uint8_t> piece(48 * 1024);
  constexpr uint32_t kRounds = 600;
  for (uint32_t n = 1; n <= kRounds; ++n) {
    // 8 bytes in each of many pages of VRAM, and pieces of a staging buffer: about 150 MiB in all.
    for (uint64_t i = 0; i < 50; ++i) Write(0, (n * 50 + i) * 4096 + i * 8, n, 8);
    for (size_t i = 0; i < piece.size(); i += 64) piece[i] = static_cast<uint8_t>(n + i);
    Memory(2, n * piece.size() % (48 << 20), piece);
    Submit(n);
    ASSERT_LE(Held(), 12u << 20);
  }
  const auto index = follower_.queues().FindByName("SDMA0");
  ASSERT_TRUE(index);
  const model::Queue& queue = follower_.queues().queues()[*index];
  EXPECT_EQ(queue.submissions_total, kRounds);
  for (const model::Submission& s : queue.submissions) {
    EXPECT_EQ(s.content, model::Submission::Content::kObserved);
    EXPECT_EQ(s.packets, 1u);
    EXPECT_EQ(s.not_packets, 0u);
  }
}

}  // namespace
}  // namespace tg::proxy
