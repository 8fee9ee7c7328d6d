// What is free of a range of memory: neighbours join, the smallest block that fits is found.
#include "deepspeed/device/memory/free_blocks.h"

#include <gtest/gtest.h>

namespace deepspeed::device {
namespace {

TEST(FreeBlocks, JoinsNeighboursOfOneKind) {
  FreeBlocks blocks;
  add_joined(blocks, 0, {10, true, 1});
  add_joined(blocks, 20, {10, true, 2});
  EXPECT_EQ(blocks.size(), 2U);
  const auto joined = add_joined(blocks, 10, {10, true, 5});
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(joined->first, 0U);
  EXPECT_EQ(joined->second.bytes, 30U);
  EXPECT_EQ(joined->second.freed, 5U);
}

TEST(FreeBlocks, CountsAJoinedBlockAsGivenBackWithItsLast) {
  FreeBlocks blocks;
  add_joined(blocks, 10, {10, true, 7});
  EXPECT_EQ(add_joined(blocks, 0, {10, true, 3})->second.freed, 7U);
}

TEST(FreeBlocks, KeepsMereAddressesApartFromPages) {
  FreeBlocks blocks;
  add_joined(blocks, 0, {10, true});
  add_joined(blocks, 20, {10, true});
  add_joined(blocks, 10, {10, false});
  EXPECT_EQ(blocks.size(), 3U);
}

TEST(FreeBlocks, FindsTheSmallestThatHasTheBytes) {
  FreeBlocks blocks;
  add_joined(blocks, 0, {100, true});
  add_joined(blocks, 200, {50, true});
  add_joined(blocks, 300, {20, true});
  add_joined(blocks, 400, {40, false});
  EXPECT_EQ(find_smallest(blocks, 30, true)->first, 200U);
  EXPECT_EQ(find_smallest(blocks, 30, false)->first, 400U);
  EXPECT_EQ(find_smallest(blocks, 101, true), blocks.end());
}

}  // namespace
}  // namespace deepspeed::device
