#include "decoder/model/copies.h"

#include <gtest/gtest.h>

#include "tests/rings/fake_memory.h"
#include "tests/rings/hex.h"

namespace tg::model {
namespace {

// Regions are host memory, everything from kVram on is VRAM.
class Memory : public test::FakeMemory {
 public:
  static constexpr uint64_t kVram = 0x300000000000;
  Place Locate(uint64_t va) const override {
    if (va < kVram) return FakeMemory::Locate(va);
    Place place;
    place.kind = Place::Kind::kVram;
    place.offset = va - kVram;
    place.run = 1 << 20;
    return place;
  }
};

class CopiesTest : public ::testing::Test {
 protected:
  CopiesTest() {
    queue_.name = "SDMA0";
    for (uint32_t i = 0; i < kSlots; ++i) {
      memory_.Map(Slot(i), 5 + i, 0x1000);
      copies_.OnRegion(5 + i, 2 << 20);
    }
    copies_.OnRegion(100, 2 << 20);  // alone: no slot
    copies_.OnRegion(3, 16 << 20);   // a ring
    memory_.Map(0x200010000000, 100, 0x1000);
  }
  static uint64_t Slot(uint32_t i) { return 0x200000000000 + i * 0x200000ull; }
  void Copy(uint64_t from, uint64_t to, uint32_t bytes, uint64_t ns = 0, bool broadcast = false) {
    std::vector<uint8_t> raw;
    const auto dword = [&](uint64_t v) {
      for (int i = 0; i < 4; ++i) raw.push_back(static_cast<uint8_t>(v >> (8 * i)));
    };
    dword(broadcast ? 0x08000001 : 1);
    dword(bytes - 1);
    dword(0);
    dword(from & 0xffffffff);
    dword(from >> 32);
    dword(to & 0xffffffff);
    dword(to >> 32);
    dword((to + 0x1000) & 0xffffffff);
    dword((to + 0x1000) >> 32);
    amd::WalkItem item;
    item.packet = amd::DecodeSdma(raw, amd::SdmaGen::k6);
    item.size = item.packet.bytes();
    copies_.OnPacket({.queue = &queue_,
                      .submission = &submission_,
                      .visited = {.item = &item},
                      .call = ++call_,
                      .ns = ns});
  }
  static constexpr uint32_t kSlots = 32;
  Memory memory_;
  Copies copies_{memory_};
  Queue queue_;
  Submission submission_;
  uint64_t call_ = 100;
};

TEST_F(CopiesTest, Directions) {
  Copy(Slot(1), Memory::kVram, 0x4000, 1'000'000);
  Copy(Slot(2), Memory::kVram, 0x2000, 2'000'000);
  Copy(Memory::kVram, Slot(0), 0x1000);
  Copy(Memory::kVram, Memory::kVram + 0x8000, 0x800);
  Copy(Slot(3), Slot(4), 0x10);
  Copy(0x100000000000, Memory::kVram, 5);
  const CopyTotals& up = copies_.totals(CopyDirection::kHostToVram);
  EXPECT_EQ(up.copies, 2u);
  EXPECT_EQ(up.bytes, 0x6000u);
  EXPECT_EQ(up.smallest, 0x2000u);
  EXPECT_EQ(up.largest, 0x4000u);
  EXPECT_EQ(up.first_call, 101u);
  EXPECT_EQ(up.last_call, 102u);
  EXPECT_EQ(copies_.totals(CopyDirection::kVramToHost).bytes, 0x1000u);
  EXPECT_EQ(copies_.totals(CopyDirection::kVramToVram).bytes, 0x800u);
  EXPECT_EQ(copies_.totals(CopyDirection::kHostToHost).bytes, 0x10u);
  EXPECT_EQ(copies_.totals(CopyDirection::kUnknown).bytes, 5u);
  EXPECT_EQ(copies_.copies(), 6u);
  EXPECT_EQ(copies_.staging().copies_out, 1u);
}

TEST_F(CopiesTest, BroadcastCountsTwice) {
  Copy(Slot(1), Memory::kVram, 0x100, 0, true);
  EXPECT_EQ(copies_.totals(CopyDirection::kHostToVram).copies, 2u);
}

TEST_F(CopiesTest, RotationOfSlots) {
  for (uint32_t i = 1; i <= 70; ++i) Copy(Slot(i % kSlots), Memory::kVram, 0x1000);
  EXPECT_EQ(copies_.staging().slots, 32u);
  EXPECT_EQ(copies_.staging().uses, 70u);
  EXPECT_EQ(copies_.staging().last_slot, 70u % 32);
  EXPECT_EQ(copies_.staging().uses_by_slot[0], 2u);
  EXPECT_EQ(copies_.staging().uses_by_slot[5], 3u);
  EXPECT_TRUE(copies_.staging().left_out.empty());
}

// A disk read failed after slot 4 was taken.
TEST_F(CopiesTest, LeakedSlot) {
  for (uint32_t i = 1; i <= 20; ++i) {
    if (i != 4) Copy(Slot(i), Memory::kVram, 0x1000);
  }
  ASSERT_EQ(copies_.staging().left_out.size(), 1u);
  EXPECT_EQ(copies_.staging().left_out[0].slot, 4u);
  EXPECT_EQ(copies_.staging().left_out[0].call, 104u);  // the copy from slot 5
  EXPECT_EQ(copies_.staging().left_out[0].uses_since, 15u);
}

// io_uring: reads end out of order.
TEST_F(CopiesTest, LateSlotsAreNotLeaks) {
  for (uint32_t i : {1, 2, 4, 5, 3, 6, 8, 7, 9}) Copy(Slot(i), Memory::kVram, 0x1000);
  EXPECT_TRUE(copies_.staging().left_out.empty());
  EXPECT_EQ(copies_.staging().last_slot, 9u);
}

// The file's offset within its page: the first piece begins inside the slot and is shorter.
TEST_F(CopiesTest, DiskPathShowsByItsMinorOffset) {
  Copy(Slot(1) + 0x234, Memory::kVram, (2 << 20) - 0x234);
  Copy(Slot(2), Memory::kVram + (2 << 20) - 0x234, 2 << 20);
  EXPECT_EQ(copies_.staging().minor_offsets, 1u);
  EXPECT_EQ(copies_.staging().last_minor_offset, 0x234u);
}

TEST_F(CopiesTest, ThroughputIsBounded) {
  for (uint64_t i = 0; i < 5000; ++i) Copy(Slot(1), Memory::kVram, 0x1000, i * 1'000'000'000);
  EXPECT_LE(copies_.rates().size(), 512u);
  uint64_t total = 0;
  for (const CopyRate& rate : copies_.rates()) total += rate.bytes[0];
  EXPECT_EQ(total, 5000u * 0x1000);
  Copy(Slot(1), Memory::kVram, 0x1000, ~0ull);
  EXPECT_LE(copies_.rates().size(), 512u);
}

TEST_F(CopiesTest, CommonSizes) {
  for (uint32_t i = 1; i <= 5000; ++i) Copy(Slot(1), Memory::kVram, i);
  for (int i = 0; i < 3; ++i) Copy(Slot(1), Memory::kVram, 77);
  ASSERT_EQ(copies_.common_sizes().size(), 16u);
  EXPECT_EQ(copies_.common_sizes()[0], (std::pair<uint64_t, uint64_t>{77, 4}));
}

}  // namespace
}  // namespace tg::model
