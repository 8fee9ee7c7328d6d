#include "deepspeed/comm/shm/read_pages.h"

#include <cstdint>
#include <cstdio>

#include <gtest/gtest.h>

#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::testing {
namespace {

using comm::shm::make_memory;
using comm::shm::map_memory;
using comm::shm::Mapping;
using comm::shm::MappingUse;
using comm::shm::ReadPages;

constexpr size_t kNumPages = 64;

/// Has the system's pages, and those of a system with the largest ones.
class ReadPagesTest : public ::testing::TestWithParam<size_t> {
 protected:
  const size_t kPage = GetParam();

  /// Counts the pages of the mapping whose beginning the process has in its tables.
  size_t num_mapped(const Mapping& mapping) const;
};

INSTANTIATE_TEST_SUITE_P(Pages, ReadPagesTest, ::testing::Values(device::page_bytes(), size_t{64} << 10));

TEST_P(ReadPagesTest, CountsEachPageOnce) {
  const auto memory = make_memory(kNumPages * kPage);
  const auto mapping = map_memory(memory, kNumPages * kPage, MappingUse::kOwn);
  ReadPages pages(mapping, kPage);
  const auto note = [&](size_t begin, size_t end) {
    pages.note(mapping->data() + begin, end - begin, kNumPages * kPage);
  };
  note(10, 20);
  EXPECT_EQ(pages.noted_bytes(), kPage);
  note(20, kPage);
  EXPECT_EQ(pages.noted_bytes(), kPage);
  note(4 * kPage, 6 * kPage);
  note(8 * kPage, 9 * kPage);
  EXPECT_EQ(pages.noted_bytes(), 4 * kPage);
  note(5 * kPage, 8 * kPage + 1);  // joins the two
  EXPECT_EQ(pages.noted_bytes(), 6 * kPage);
  note(0, kNumPages * kPage);
  EXPECT_EQ(pages.noted_bytes(), kNumPages * kPage);
  note(0, 0);
  EXPECT_EQ(pages.noted_bytes(), kNumPages * kPage);
}

size_t ReadPagesTest::num_mapped(const Mapping& mapping) const {
  size_t count = 0;
  const auto file = ::fopen("/proc/self/pagemap", "r");
  if (file == nullptr) return 0;
  for (size_t page = 0; page < kNumPages; ++page) {
    uint64_t entry = 0;
    const auto address = reinterpret_cast<size_t>(mapping.data()) + page * kPage;
    if (::fseek(file, static_cast<long>(address / device::page_bytes() * sizeof(entry)), SEEK_SET) != 0 ||
        ::fread(&entry, sizeof(entry), 1, file) != 1)
      break;
    count += entry >> 63;
  }
  ::fclose(file);
  return count;
}

TEST_P(ReadPagesTest, LetsGoBeyondTheBudgetAndTheContentStays) {
  const auto memory = make_memory(kNumPages * kPage);
  const auto own = map_memory(memory, kNumPages * kPage, MappingUse::kCommon);
  for (size_t i = 0; i < kNumPages; ++i) own->data()[i * kPage] = static_cast<char>(i);
  const auto mapping = map_memory(memory, kNumPages * kPage, MappingUse::kPeer);
  const auto read = [&](size_t end) {
    int sum = 0;
    for (size_t i = 0; i < end; ++i) sum += mapping->data()[i * kPage];
    return sum;
  };
  ReadPages pages(mapping, kPage);
  constexpr size_t kBudget = 8;
  EXPECT_EQ(read(8), 28);
  pages.note(mapping->data(), 8 * kPage, kBudget * kPage);
  EXPECT_GE(num_mapped(*mapping), 8U);
  EXPECT_EQ(read(kNumPages), 2016);
  pages.note(mapping->data(), kNumPages * kPage, kBudget * kPage);
  EXPECT_EQ(pages.noted_bytes(), 0U);
  EXPECT_EQ(num_mapped(*mapping), 0U);
  EXPECT_EQ(read(kNumPages), 2016);
}

}  // namespace
}  // namespace deepspeed::testing
