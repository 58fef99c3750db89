#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "replay/script/shared.h"
#include "replay/script/sparse.h"
#include "tests/replay/session.h"

namespace tg::replay {
namespace {

using testing::Le;

TEST(SparseMemory, UnseenIsKeptApartFromZero) {
  SparseMemory memory;
  EXPECT_FALSE(memory.Known(0, 1));
  memory.Write(4094, std::vector<uint8_t>{1, 2, 3, 4});  // over a page border
  EXPECT_TRUE(memory.Known(4094, 4));
  EXPECT_FALSE(memory.Known(4093, 2));
  EXPECT_FALSE(memory.Known(4096, 3));
  std::vector<uint8_t> bytes(6, 0xee);
  memory.Read(4093, bytes);
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0, 1, 2, 3, 4, 0}));
  memory.Zero(4095, 2);
  memory.Read(4093, bytes);
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0, 1, 0, 0, 4, 0}));
  memory.Zero(8192, 3 * 4096);
  EXPECT_TRUE(memory.Known(8192, 3 * 4096));
  EXPECT_FALSE(memory.Known(8192, 3 * 4096 + 1));
  EXPECT_FALSE(memory.Known(4098, 4096));
}

TEST(SparseMemory, AbsurdRangesAreBounded) {
  SparseMemory memory;
  memory.Zero(UINT64_MAX - 10, UINT64_MAX);
  EXPECT_LE(memory.pages(), 2u);
  memory.Zero(0, UINT64_MAX);
  EXPECT_EQ(memory.pages(), SparseMemory::kMaxZeros / SparseMemory::kPage + 1);
  EXPECT_FALSE(memory.Known(UINT64_MAX - 3, 100));
}

Memory At(uint64_t offset, std::vector<uint8_t> data) {
  Memory memory;
  memory.offset = offset;
  memory.data = std::move(data);
  return memory;
}

uint32_t Word(const SharedMemory& memory, size_t offset) {
  uint32_t value;
  std::memcpy(&value, memory.bytes().data() + offset, 4);
  return value;
}

void Store(SharedMemory& memory, size_t offset, uint32_t value) {
  std::memcpy(memory.bytes().data() + offset, &value, 4);
}

TEST(SharedMemory, WhoseWordsAreTaken) {
  auto made = SharedMemory::Create(0x4000);
  ASSERT_TRUE(made) << made.error().message;
  SharedMemory& memory = *made;
  // The recording: a fence of the device at 0, a ring word of the client at 4, a word at 8 that
  // both touched, and one at 12 that did not change.
  memory.Apply(At(12, Le(9, 4)), Merge::kRemember);
  Store(memory, 4, 0x11);  // the client's ring word here, the same in the recording
  Store(memory, 8, 0x22);  // the client's, another in the recording
  Store(memory, 12, 7);    // the client changed it here only
  std::vector<uint8_t> now = Le(5, 4);
  for (const uint32_t word : {0x11u, 0x33u, 9u}) {
    const auto bytes = Le(word, 4);
    now.insert(now.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(memory.Count(At(0, now), Merge::kOther), 1u);
  EXPECT_EQ(memory.Count(At(0, now), Merge::kChanged), 2u);
  EXPECT_EQ(memory.Count(At(0, now), Merge::kAll), 3u);
  EXPECT_EQ(memory.Apply(At(0, now), Merge::kOther), 1u);
  EXPECT_EQ(Word(memory, 0), 5u);
  EXPECT_EQ(Word(memory, 4), 0x11u);
  EXPECT_EQ(Word(memory, 8), 0x22u);
  EXPECT_EQ(Word(memory, 12), 7u);
  EXPECT_EQ(memory.Apply(At(0, now), Merge::kAll), 2u);
  EXPECT_EQ(Word(memory, 8), 0x33u);
}

TEST(SharedMemory, PastTheEndAndOddSizes) {
  auto memory = SharedMemory::Create(0x1000);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->Apply(At(0xffe, {1, 2, 3, 4}), Merge::kAll), 1u);
  EXPECT_EQ(memory->bytes()[0xffe], 1);
  EXPECT_EQ(memory->bytes()[0xfff], 2);
  EXPECT_EQ(memory->Apply(At(0x1000, {1}), Merge::kAll), 0u);
  EXPECT_EQ(memory->Apply(At(UINT64_MAX - 1, {1, 2, 3}), Merge::kAll), 0u);
  Memory zeros;
  zeros.zeros = UINT64_MAX;
  EXPECT_EQ(memory->Apply(zeros, Merge::kAll), 1u);
  EXPECT_EQ(memory->bytes()[0xfff], 0);
  EXPECT_EQ(memory->Apply(At(1, {7, 7, 7, 7, 7}), Merge::kAll), 2u);
  EXPECT_EQ(Word(*memory, 0), 0x07070700u);
}

TEST(SharedMemory, AddressTable) {
  auto memory = SharedMemory::Create(0x4000);
  ASSERT_TRUE(memory);
  memory->bytes()[40] = 0xff;
  const std::vector<DmaRange> ranges{{0x1'0000'0000, 0x2000}, {0x2'0000'0000, 0x2000}};
  memory->StoreTable(ranges);
  EXPECT_EQ(memory->LoadTable(), ranges);
  EXPECT_EQ(memory->bytes()[4], 1);
  EXPECT_EQ(memory->bytes()[40], 0);  // the closing pair
  auto tiny = SharedMemory::Create(16);
  ASSERT_TRUE(tiny);
  tiny->StoreTable(ranges);  // room for the closing pair only
  EXPECT_TRUE(tiny->LoadTable().empty());
}

TEST(SharedMemory, SizesThatCannotBe) {
  EXPECT_FALSE(SharedMemory::Create(0));
  EXPECT_FALSE(SharedMemory::Create(UINT64_MAX));
  auto memory = SharedMemory::Create(0x1000);
  ASSERT_TRUE(memory);
  const auto larger = SharedMemory::Map(UniqueFd(dup(memory->fd())), 0x100000);
  ASSERT_FALSE(larger);
  EXPECT_NE(larger.error().message.find("the reply says 1048576"), std::string::npos);
  const auto same = SharedMemory::Map(UniqueFd(dup(memory->fd())), 0x1000);
  ASSERT_TRUE(same);
  memory->bytes()[17] = 0x5a;
  EXPECT_EQ(same->bytes()[17], 0x5a);  // one memory
}

}  // namespace
}  // namespace tg::replay
