#include "proxy/capture/handover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace tg::proxy {
namespace {

Handed Message(uint64_t call, std::span<const uint8_t> data) {
  Handed record;
  record.kind = Handed::Kind::kRequest;
  record.call = call;
  record.now = call * 10;
  record.header = {.command = 7, .dev = 1, .bar = 2, .arg0 = 0x800, .arg1 = data.size(), .arg2 = 5};
  record.reply = {.status = 3, .resp0 = 11, .resp1 = 12};
  record.size = data.size();
  record.offset = 4;
  record.data = data;
  return record;
}

TEST(Handover, CarriesEverything) {
  Handover handover(1 << 16);
  const std::vector<uint8_t> data = {1, 2, 3, 4, 5};
  ASSERT_TRUE(handover.Put(Message(9, data)));
  Handed got;
  uint64_t lost = 99;
  ASSERT_TRUE(handover.Take(got, lost));
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(got.kind, Handed::Kind::kRequest);
  EXPECT_EQ(got.call, 9u);
  EXPECT_EQ(got.now, 90u);
  EXPECT_EQ(got.header, Message(9, data).header);
  EXPECT_EQ(got.reply, Message(9, data).reply);
  EXPECT_EQ(got.size, 5u);
  EXPECT_EQ(got.offset, 4u);
  EXPECT_EQ(std::vector<uint8_t>(got.data.begin(), got.data.end()), data);
  handover.Release();
  EXPECT_FALSE(handover.Take(got, lost));
}

TEST(Handover, FullMeansRefusedAndCounted) {
  Handover handover(1 << 16);
  const std::vector<uint8_t> data(1000, 7);
  uint64_t accepted = 0;
  while (handover.Put(Message(accepted + 1, data))) ++accepted;
  EXPECT_GT(accepted, 50u);
  EXPECT_FALSE(handover.Put(Message(0, data)));
  EXPECT_EQ(handover.dropped(), 2u);
  Handed got;
  uint64_t lost = 0;
  for (uint64_t i = 1; i <= accepted; ++i) {
    ASSERT_TRUE(handover.Take(got, lost));
    EXPECT_EQ(got.call, i);
    EXPECT_EQ(lost, 0u);
    handover.Release();
  }
  ASSERT_TRUE(handover.Put(Message(500, data)));
  ASSERT_TRUE(handover.Take(got, lost));
  EXPECT_EQ(got.call, 500u);
  EXPECT_EQ(lost, 2u);
  EXPECT_EQ(handover.dropped(), 0u);
}

TEST(Handover, TooLargeDataIsLeftOut) {
  Handover handover(1 << 20);
  const std::vector<uint8_t> data(kHandedBytes + 1, 7);
  ASSERT_TRUE(handover.Put(Message(1, data)));
  Handed got;
  uint64_t lost = 0;
  ASSERT_TRUE(handover.Take(got, lost));
  EXPECT_TRUE(got.data.empty());
  EXPECT_EQ(got.size, kHandedBytes + 1);
}

// Over TCP ring bytes come as SYSMEM_WRITE, at times a long stretch in one.
TEST(Handover, SysmemWritesArriveWhole) {
  Handover handover(1 << 20);
  std::vector<uint8_t> data(kHandedSysmem);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 31);
  Handed record = Message(1, data);
  record.header.command = static_cast<uint8_t>(wire::Command::kSysmemWrite);
  ASSERT_TRUE(handover.Put(record));
  Handed got;
  uint64_t lost = 0;
  ASSERT_TRUE(handover.Take(got, lost));
  EXPECT_TRUE(std::equal(got.data.begin(), got.data.end(), data.begin(), data.end()));
}

// A reader that keeps up costs a part of the ring's memory, not all of it.
TEST(Handover, StaysAtTheFrontWhileTheReaderKeepsUp) {
  Handover handover(4 << 20);
  const std::vector<uint8_t> data(1000, 7);
  Handed got;
  uint64_t lost = 0;
  const uint8_t* first = nullptr;
  size_t farthest = 0;
  for (uint64_t i = 1; i <= 20'000; ++i) {
    ASSERT_TRUE(handover.Put(Message(i, data)));
    ASSERT_TRUE(handover.Take(got, lost));
    ASSERT_EQ(got.call, i);
    if (!first) first = got.data.data();
    farthest = std::max(farthest, static_cast<size_t>(got.data.data() - first));
    handover.Release();
    ASSERT_FALSE(handover.Take(got, lost));
  }
  EXPECT_LT(farthest, 300u * 1024);
}

// Sizes of all kinds across the buffer's end, by two threads at once.
TEST(Handover, TwoThreads) {
  Handover handover(1 << 16);
  constexpr uint64_t kCount = 200'000;
  std::thread writer([&] {
    std::vector<uint8_t> data(3000);
    for (uint64_t i = 1; i <= kCount; ++i) {
      const size_t size = i * 7919 % 1201;
      std::memset(data.data(), static_cast<int>(i & 0xff), size);
      while (!handover.Put(Message(i, std::span(data).first(size)))) std::this_thread::yield();
    }
  });
  uint64_t next = 1;
  Handed got;
  uint64_t lost = 0;
  while (next <= kCount) {
    if (!handover.Take(got, lost)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(got.call, next);
    ASSERT_EQ(got.data.size(), next * 7919 % 1201);
    for (const uint8_t b : got.data) ASSERT_EQ(b, static_cast<uint8_t>(next));
    ++next;
    handover.Release();
  }
  writer.join();
}

}  // namespace
}  // namespace tg::proxy
