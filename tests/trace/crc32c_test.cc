#include "schemas/trace/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace tg::trace {
namespace {

// RFC 3720 appendix B.4, and the usual check value of CRC-32C.
TEST(Crc32c, StandardVectors) {
  std::vector<uint8_t> bytes(32, 0x00);
  EXPECT_EQ(Crc32c(bytes), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(Crc32c(bytes), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes), 0x46dd794eu);
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(Crc32c(bytes), 0x113fdb5cu);
  const std::string_view check = "123456789";
  EXPECT_EQ(Crc32c({reinterpret_cast<const uint8_t*>(check.data()), check.size()}), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, TableAgreesWithInstructionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(160);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  for (size_t begin = 0; begin < 16; begin++) {
    for (size_t size = 0; begin + size <= bytes.size(); size++) {
      const std::span<const uint8_t> part(bytes.data() + begin, size);
      ASSERT_EQ(Crc32c(part), Crc32cTable(part)) << begin << " " << size;
    }
  }
}

TEST(Crc32c, GoesOnWhereItStopped) {
  std::vector<uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), uint8_t{7});
  const std::span<const uint8_t> all(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut++) {
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), Crc32c(all));
    EXPECT_EQ(Crc32cTable(all.subspan(cut), Crc32cTable(all.first(cut))), Crc32c(all));
  }
}

}  // namespace
}  // namespace tg::trace
