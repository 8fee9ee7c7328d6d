#include "deepspeed/checkpoint/file/crc32.h"

#include <string>

#include <gtest/gtest.h>

namespace deepspeed::checkpoint {
namespace {

/// Computes the checksum bit by bit, directly from the polynomial.
uint32_t slow_crc32(uint32_t crc, const std::string& bytes) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc ^= uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

TEST(Crc32, IsThatOfZip) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32(0, "", 0), 0u);
}

TEST(Crc32, IsTheSameForEveryLengthStartAndCut) {
  std::string bytes(3000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i * 31 + i / 7);
  for (size_t begin = 0; begin < 17; ++begin) {
    for (size_t size = 0; size + begin <= 400; ++size) {
      const std::string part = bytes.substr(begin, size);
      ASSERT_EQ(crc32(7, bytes.data() + begin, size), slow_crc32(7, part)) << begin << " " << size;
    }
  }
  for (size_t cut = 0; cut <= bytes.size(); cut += 13) {
    const uint32_t first = crc32(0, bytes.data(), cut);
    ASSERT_EQ(crc32(first, bytes.data() + cut, bytes.size() - cut), slow_crc32(0, bytes)) << cut;
  }
}

TEST(Crc32, OfTwoRunsFollowsFromThatOfEach) {
  std::string bytes(300'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i * 131 + i / 5);
  const uint32_t whole = crc32(0, bytes.data(), bytes.size());
  for (size_t cut = 0; cut <= bytes.size(); cut += 29'999) {
    const uint32_t first = crc32(0, bytes.data(), cut);
    const uint32_t second = crc32(0, bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(combine_crc32(first, second, bytes.size() - cut), whole) << cut;
  }
  // Beyond 32 bits: n zero bytes twice are 2n zero bytes.
  uint32_t zeros = crc32(0, std::string(1 << 20, '\0').data(), 1 << 20);
  uint32_t one_more = zeros;
  for (uint64_t size = 1 << 20; size < uint64_t{1} << 40; size *= 2) {
    one_more = combine_crc32(combine_crc32(zeros, zeros, size), crc32(0, "x", 1), 1);
    zeros = combine_crc32(zeros, zeros, size);
    EXPECT_EQ(one_more, crc32(zeros, "x", 1)) << size;
  }
}

}  // namespace
}  // namespace deepspeed::checkpoint
