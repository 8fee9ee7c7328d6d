#include "deepspeed/device/host_pool/page_stock.h"

#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::device {
namespace {

class Range {
 public:
  explicit Range(size_t bytes) : addresses_(reserve_addresses(bytes, kHugePage)) {
    EXPECT_EQ(::mprotect(data(), bytes, PROT_READ | PROT_WRITE), 0);
  }
  ~Range() { release_addresses(addresses_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  char* data() const { return addresses_.data; }

 private:
  Addresses addresses_;
};

TEST(PageStock, MovesMemoryFromOneRangeToAnother) {
  PageStock stock(64 * kHugePage);
  const Range from(4 * kHugePage), to(8 * kHugePage);
  std::memset(from.data(), 5, 4 * kHugePage);
  stock.put(from.data(), 4 * kHugePage);
  for (size_t at = 0; at < 4 * kHugePage; at += 5000) ASSERT_EQ(from.data()[at], 0) << at;
  if (stock.bytes() == 0) GTEST_SKIP() << "the system moves no pages";
  EXPECT_EQ(stock.bytes(), 4 * kHugePage);
  EXPECT_EQ(stock.take(to.data(), kHugePage), kHugePage);
  EXPECT_EQ(stock.take(to.data() + kHugePage, 7 * kHugePage), 3 * kHugePage);
  EXPECT_EQ(stock.take(to.data(), kHugePage), 0U);
  for (size_t at = 0; at < 4 * kHugePage; at += 5000) ASSERT_EQ(to.data()[at], 5) << at;
  std::memset(from.data(), 6, 4 * kHugePage);
}

TEST(PageStock, HoldsNoMoreThanItHasAddressesFor) {
  PageStock stock(2 * kHugePage);
  const Range from(4 * kHugePage);
  std::memset(from.data(), 5, 4 * kHugePage);
  stock.put(from.data(), 4 * kHugePage);
  EXPECT_LE(stock.bytes(), 2 * kHugePage);
  for (size_t at = 0; at < 4 * kHugePage; at += 5000) ASSERT_EQ(from.data()[at], 0) << at;
  stock.trim(kHugePage + 1);
  EXPECT_LE(stock.bytes(), kHugePage);
  stock.trim(0);
  EXPECT_EQ(stock.bytes(), 0U);
}

}  // namespace
}  // namespace deepspeed::device
