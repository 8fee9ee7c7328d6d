#include "deepspeed/zero/layout/shard_layout.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

std::vector<size_t> sizes_of_sub_groups(const std::vector<int64_t>& numels, int world, int64_t sub_group) {
  const ShardLayout layout(numels, world, sub_group);
  std::vector<size_t> sizes;
  int64_t end = 0;
  size_t next = 0;
  for (const SubGroup& part : layout.sub_groups()) {
    EXPECT_EQ(part.in_flat.begin, end);
    EXPECT_EQ(part.first_param, next);
    end = part.in_flat.end;
    next += part.num_params;
    sizes.push_back(part.num_params);
  }
  EXPECT_EQ(end, layout.flat_numel());
  return sizes;
}

TEST(ShardLayout, PadsEachParameterByItself) {
  const ShardLayout layout({5, 8, 1, 0}, 4, 1000);
  EXPECT_EQ(layout.numel(), 14);
  EXPECT_EQ(layout.flat_numel(), 2 + 2 + 1 + 0);
  EXPECT_EQ(layout.place(1), (Interval{2, 4}));
  EXPECT_EQ(layout.place(2), (Interval{4, 5}));
  EXPECT_EQ(layout.padded_numel(0), 8);
  EXPECT_EQ(layout.elements(0, 1), (Interval{2, 4}));
  EXPECT_EQ(layout.elements(0, 2), (Interval{4, 5}));
  EXPECT_TRUE(layout.elements(0, 3).empty());
  EXPECT_EQ(layout.padding(0, 2), 1);
  EXPECT_EQ(layout.padding(0, 3), 2);
  EXPECT_EQ(layout.padding(1, 3), 0);
  EXPECT_EQ(layout.padding(2, 1), 1);
  EXPECT_EQ(layout.padded_numel(3), 0);
}

TEST(ShardLayout, EndsASubGroupWhenItIsFullAsInDeepSpeed) {
  // Shards of 4 elements on each of two ranks.
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 8, 8, 8}, 2, 6), (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 8, 8}, 2, 8), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 8}, 2, 4), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 8}, 2, 0), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 0}, 2, 8), (std::vector<size_t>{3}));
  EXPECT_EQ(sizes_of_sub_groups({8, 8, 8}, 2, 1'000'000'000), (std::vector<size_t>{3}));
  EXPECT_TRUE(sizes_of_sub_groups({}, 2, 8).empty());
}

TEST(ShardLayout, ShardsCoverEveryElementOnce) {
  const std::vector<int64_t> numels = {3, 0, 11, 1, 6};
  for (const int world : {1, 2, 3, 4, 7}) {
    const ShardLayout layout(numels, world, 3);
    std::vector<std::vector<int>> seen;
    for (const int64_t numel : numels) seen.emplace_back(static_cast<size_t>(numel), 0);
    for (int rank = 0; rank < world; ++rank) {
      int64_t padding = layout.flat_numel();
      for (size_t index = 0; index < numels.size(); ++index) padding -= layout.elements(index, rank).numel();
      for (size_t index = 0; index < numels.size(); ++index) padding -= layout.padding(index, rank);
      EXPECT_EQ(padding, 0);
      for (const SubGroup& part : layout.sub_groups()) {
        for (const ParamPiece& piece : layout.pieces(part.in_flat, rank)) {
          EXPECT_TRUE(Interval({0, part.in_flat.numel()}).contains(piece.in_interval));
          for (int64_t i = 0; i < piece.in_interval.numel(); ++i)
            ++seen[piece.index][static_cast<size_t>(piece.offset_in_param + i)];
        }
      }
    }
    for (size_t index = 0; index < numels.size(); ++index)
      EXPECT_EQ(seen[index], std::vector<int>(static_cast<size_t>(numels[index]), 1)) << world;
  }
}

TEST(ShardLayout, PiecesOfACutIntervalLeaveOutPadding) {
  const ShardLayout layout({5, 7}, 2, 1000);  // shards of 3 and 4
  const auto pieces = layout.pieces({1, 6}, 1);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].in_interval, (Interval{0, 1}));  // element 4; the next one is padding
  EXPECT_EQ(pieces[0].offset_in_param, 4);
  EXPECT_EQ(pieces[1].in_interval, (Interval{2, 5}));
  EXPECT_EQ(pieces[1].offset_in_param, 4);
}

TEST(ShardLayout, RefusesSizesThatAreNone) {
  EXPECT_ERROR(UsageError, ShardLayout({1, -2}, 2, 8), "parameter 1 has -2 elements");
  EXPECT_ERROR(UsageError, ShardLayout({1}, 0, 8), "world size 0, expected at least 1");
  EXPECT_ERROR(UsageError, ShardLayout({1}, 2, -1), "sub_group_size -1, expected 0 or more");
}

}  // namespace
}  // namespace deepspeed::zero
