#include "decoder/model/shadow.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace tg::model {
namespace {

std::vector<uint8_t> Ramp(size_t size, uint8_t from = 1) {
  std::vector<uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), from);
  return bytes;
}

TEST(Shadow, NeverObservedIsNotZero) {
  Shadow s;
  EXPECT_EQ(s.U32(0), std::nullopt);
  EXPECT_EQ(s.OriginOf(0).origin, Origin::kNone);
  s.Write(4, Ramp(4), {Origin::kWrite, 7});
  EXPECT_EQ(s.U32(0), std::nullopt);
  EXPECT_EQ(s.U32(4), 0x04030201u);
  EXPECT_EQ(s.U64(4), std::nullopt);
  EXPECT_EQ(s.KnownBytes(4, 100), 4u);
  EXPECT_EQ(s.KnownBytes(0, 100), 0u);
  EXPECT_EQ(s.OriginOf(4).call, 7u);
  std::vector<uint8_t> out(8, 0xee);
  EXPECT_FALSE(s.Read(0, out));
  EXPECT_EQ(out, (std::vector<uint8_t>{0xee, 0xee, 0xee, 0xee, 1, 2, 3, 4}));
}

TEST(Shadow, ZeroFillCostsNoDataAndSmallWritesKeepTheirOrigin) {
  Shadow s;
  s.WriteZeros(0x10000, 16 << 20, {Origin::kWrite, 3});
  EXPECT_EQ(s.data_bytes(), 0u);
  EXPECT_EQ(s.U64(0x10000), 0u);
  EXPECT_EQ(s.KnownBytes(0x10000, 32 << 20), 16u << 20);
  s.Write(0x11008, Ramp(8), {Origin::kWrite, 4});
  EXPECT_EQ(s.data_bytes(), 4096u);
  EXPECT_EQ(s.U64(0x11008), 0x0807060504030201u);
  EXPECT_EQ(s.U64(0x11000), 0u);
  EXPECT_EQ(s.OriginOf(0x11008).call, 4u);
  EXPECT_EQ(s.OriginOf(0x11000).call, 3u);
  EXPECT_EQ(s.OriginOf(0x12000).call, 3u);
}

TEST(Shadow, UnknownContentIsTouchedButNotKnown) {
  Shadow s;
  s.Write(0x5000, Ramp(16), {Origin::kWrite, 1});
  s.WriteUnknown(0x4000, 0x10000, {Origin::kWrite, 2});
  EXPECT_EQ(s.U32(0x5000), std::nullopt);
  EXPECT_EQ(s.OriginOf(0x5000).call, 2u);
  EXPECT_EQ(s.data_bytes(), 0u);
  const auto touched = s.Touched();
  ASSERT_EQ(touched.size(), 1u);
  EXPECT_EQ(touched[0].begin, 0x4000u);
  EXPECT_EQ(touched[0].end, 0x14000u);
}

TEST(Shadow, ObservingTheSameBytesKeepsTheWriter) {
  Shadow s;
  s.Write(0, Ramp(16), {Origin::kWrite, 5});
  s.Observe(0, Ramp(16), {Origin::kRead, 6});
  EXPECT_EQ(s.OriginOf(0).call, 5u);
  auto changed = Ramp(16);
  changed[9] = 0xff;
  s.Observe(0, changed, {Origin::kRead, 7});
  EXPECT_EQ(s.OriginOf(0).call, 5u);
  EXPECT_EQ(s.OriginOf(8).call, 7u);
  EXPECT_EQ(s.OriginOf(8).origin, Origin::kRead);
  s.Observe(16, Ramp(4), {Origin::kSnapshot, 8});
  EXPECT_EQ(s.U32(16), 0x04030201u);
}

TEST(Shadow, HugeRangesAreBounded) {
  Shadow s;
  s.WriteZeros(0, ~0ull, {Origin::kWrite, 1});
  s.WriteUnknown(1ull << 40, ~0ull, {Origin::kWrite, 2});  // cut at 2^64
  EXPECT_EQ(s.U64(12345 * 8), 0u);
  EXPECT_EQ(s.U64(1ull << 41), std::nullopt);
  EXPECT_EQ(s.OriginOf(1ull << 41).call, 2u);
  s.Write(~0ull - 3, Ramp(16), {Origin::kWrite, 3});
  EXPECT_EQ(s.U32(~0ull - 3), 0x04030201u);
  std::vector<uint8_t> out(16);
  EXPECT_FALSE(s.Read(~0ull - 3, out));
}

TEST(Shadow, OverTheLimitContentIsDroppedAndSaidSo) {
  Shadow s(2 * 4096);
  for (uint64_t page = 0; page < 4; ++page) {
    s.Write(page * 4096, Ramp(64), {Origin::kWrite, page + 1});
  }
  EXPECT_EQ(s.data_bytes(), 2u * 4096);
  EXPECT_EQ(s.dropped_bytes(), 128u);
  EXPECT_TRUE(s.U32(0));
  EXPECT_EQ(s.U32(3 * 4096), std::nullopt);
  EXPECT_EQ(s.OriginOf(3 * 4096).call, 4u);
}

// A trace that writes 8 bytes to each of very many pages: what is held stays within the budget, and
// nothing that was dropped reads as something older.
TEST(Shadow, ManyPagesStayWithinTheBudget) {
  ShadowBudget budget{.limit = 1 << 20, .used = 0};
  {
    Shadow s(1 << 20, &budget);
    Shadow other(1 << 20, &budget);
    other.Write(0, Ramp(64), {Origin::kWrite, 1});
    s.WriteZeros(0, 1ull << 40, {Origin::kWrite, 2});
    uint64_t kept = 0, gone = 0;
    for (uint64_t page = 0; page < 10000; ++page) {
      s.Write(page * 4096 + 8, Ramp(8), {Origin::kWrite, page + 3});
      EXPECT_LE(budget.used, budget.limit);
      const auto word = s.U64(page * 4096 + 8);
      if (word) {
        EXPECT_EQ(*word, 0x0807060504030201u);
        ++kept;
      } else {
        ++gone;
      }
    }
    EXPECT_GT(kept, 50u);
    EXPECT_GT(gone, 9000u);
    EXPECT_EQ(s.U64(20000 * 4096), 0u);  // still under the fill
    EXPECT_EQ(budget.used, s.held_bytes() + other.held_bytes());
    EXPECT_EQ(s.dropped_bytes(), gone * 8);
    Shadow moved = std::move(other);
    EXPECT_EQ(moved.U32(0), 0x04030201u);
    moved = Shadow(1 << 20, &budget);
    EXPECT_EQ(budget.used, s.held_bytes());
    s.WriteZeros(0, 1ull << 40, {Origin::kWrite, 20000});  // whole pages give their memory back
    EXPECT_EQ(s.held_bytes(), 0u);
  }
  EXPECT_EQ(budget.used, 0u);
}

// Against a byte map that does the same in the plainest way.
TEST(Shadow, RandomOperationsEqualAByteMap) {
  std::mt19937_64 random(1);
  constexpr uint64_t kSize = 16 * 4096;
  for (int round = 0; round < 20; ++round) {
    Shadow s;
    struct Byte {
      bool known = false;
      uint8_t value = 0;
    };
    std::vector<Byte> bytes(kSize);
    std::vector<uint64_t> word_call(kSize / 8, 0);
    for (uint64_t call = 1; call <= 200; ++call) {
      const uint64_t offset = random() % kSize;
      const uint64_t size =
          std::min<uint64_t>(kSize - offset, 1 + random() % (random() % 4 == 0 ? 10 * 4096 : 40));
      const int kind = static_cast<int>(random() % 4);
      std::vector<uint8_t> data(size);
      for (uint8_t& b : data) b = static_cast<uint8_t>(random() % 3);
      if (kind == 0) s.WriteZeros(offset, size, {Origin::kWrite, call});
      if (kind == 1) s.WriteUnknown(offset, size, {Origin::kWrite, call});
      if (kind == 2) s.Write(offset, data, {Origin::kWrite, call});
      if (kind == 3) s.Observe(offset, data, {Origin::kRead, call});
      for (uint64_t i = 0; i < size; ++i) {
        Byte& b = bytes[offset + i];
        const bool same = b.known && b.value == data[i];
        if (kind != 3 || !same) word_call[(offset + i) / 8] = call;
        b = kind == 1 ? Byte{} : Byte{true, kind == 0 ? uint8_t{0} : data[i]};
      }
    }
    for (uint64_t at = 0; at + 8 <= kSize; at += 8) {
      std::array<uint8_t, 8> out{};
      const bool all = s.Read(at, out);
      bool want = true;
      for (uint64_t i = 0; i < 8; ++i) {
        want &= bytes[at + i].known;
        if (bytes[at + i].known) {
          ASSERT_EQ(out[i], bytes[at + i].value) << at + i;
        }
      }
      ASSERT_EQ(all, want) << at;
      ASSERT_EQ(s.OriginOf(at).call, word_call[at / 8]) << at;
    }
    uint64_t known = 0;
    while (known < kSize && bytes[known].known) ++known;
    ASSERT_EQ(s.KnownBytes(0, kSize), known);
  }
}

// A load that writes its way through very much memory: what is held stays within the budget, the
// newest is known, and so is what somebody goes on reading; the rest is as if never observed.
TEST(Shadow, OldPagesThatNobodyReadsMakeRoom) {
  ShadowBudget budget{.limit = 1 << 20, .used = 0};
  Shadow s(1 << 20, &budget);
  Shadow other(1 << 20, &budget);
  budget.make_room = [&](uint64_t bytes) {
    (s.held_bytes() > other.held_bytes() ? s : other).Forget(std::max<uint64_t>(bytes, 1 << 14));
  };
  s.WriteZeros(0, 1ull << 40, {Origin::kWrite, 1});
  s.Write(0, Ramp(64), {Origin::kWrite, 2});
  other.Write(0, Ramp(64), {Origin::kWrite, 3});
  for (uint64_t page = 1; page < 10000; ++page) {
    for (const uint64_t word : {8, 64, 4000})
      s.Write(page * 4096 + word, Ramp(8), {Origin::kWrite, page + 3});
    ASSERT_LE(budget.used, budget.limit);
    ASSERT_EQ(s.U64(page * 4096 + 64), 0x0807060504030201u);
    ASSERT_EQ(s.OriginOf(page * 4096 + 64).call, page + 3);
    if (page % 16 == 0) {
      ASSERT_EQ(s.U32(4), 0x08070605u) << page;
      ASSERT_EQ(other.U32(4), 0x08070605u) << page;
    }
  }
  EXPECT_EQ(s.U64(5000 * 4096 + 64), std::nullopt);
  EXPECT_EQ(s.U64(5000 * 4096 + 128), std::nullopt);  // not the zeros from before, either
  EXPECT_EQ(s.OriginOf(5000 * 4096).origin, Origin::kNone);
  EXPECT_EQ(s.U64(20000 * 4096), 0u);
  EXPECT_EQ(s.dropped_bytes(), 0u);
  EXPECT_EQ(budget.used, s.held_bytes() + other.held_bytes());
}

// All pages are read all the time: then the oldest goes all the same.
TEST(Shadow, WhenAllPagesAreReadTheOldestGoes) {
  ShadowBudget budget{.limit = 1 << 18, .used = 0};
  Shadow s(1 << 18, &budget);
  budget.make_room = [&](uint64_t bytes) { s.Forget(bytes); };
  for (uint64_t page = 0; page < 500; ++page) {
    s.Write(page * 4096, Ramp(8), {Origin::kWrite, page + 1});
    for (uint64_t seen = 0; seen < page; ++seen) s.U64(seen * 4096);
    ASSERT_EQ(s.U64(page * 4096), 0x0807060504030201u);
    ASSERT_LE(budget.used, budget.limit);
  }
  EXPECT_EQ(s.dropped_bytes(), 0u);
}

// Large writes whose content is not kept, everywhere: their places are bounded by the budget too,
// and what is known to be zero outlives them.
TEST(Shadow, PlacesOfUnknownContentStayBounded) {
  ShadowBudget budget{.limit = 1 << 20, .used = 0};
  Shadow s(1 << 20, &budget);
  s.WriteZeros(0, 1 << 20, {Origin::kWrite, 1});
  for (uint64_t i = 1; i < 100'000; ++i) s.WriteUnknown(i << 20, 64 << 10, {Origin::kWrite, i + 1});
  EXPECT_EQ(s.U64(4096), 0u);
  EXPECT_LE(s.Touched(1 << 20).size(), 4096u);
  EXPECT_EQ(s.U64(99'999ull << 20), std::nullopt);
}

}  // namespace
}  // namespace tg::model
