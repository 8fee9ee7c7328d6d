#include "deepspeed/zero/layout/partition.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

TEST(FlatLayout, PadsToTwiceTheWorldAsDeepSpeedDoes) {
  const FlatLayout layout({5, 8}, 2);
  EXPECT_EQ(layout.numel(), 13);
  EXPECT_EQ(layout.padded_numel(), 16);
  EXPECT_EQ(layout.partition(1), (Interval{8, 16}));
  EXPECT_EQ(layout.padding(0), 0);
  EXPECT_EQ(layout.padding(1), 3);
}

TEST(FlatLayout, PaddingMayCoverWholePartitions) {
  const FlatLayout layout({1}, 4);
  EXPECT_EQ(layout.padded_numel(), 8);
  EXPECT_EQ(layout.padding(0), 1);
  EXPECT_EQ(layout.padding(1), 2);
  EXPECT_EQ(layout.padding(3), 2);
}

TEST(FlatLayout, CutsParametersAtPartitionBounds) {
  const FlatLayout layout({5, 8}, 2);
  const auto first = layout.pieces(layout.partition(0));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1].in_interval, (Interval{5, 8}));
  EXPECT_EQ(first[1].offset_in_param, 0);
  const auto second = layout.pieces(layout.partition(1));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].index, 1U);
  EXPECT_EQ(second[0].in_interval, (Interval{0, 5}));
  EXPECT_EQ(second[0].offset_in_param, 3);
}

TEST(FlatLayout, RoundRobinSpreadsConsecutiveParameters) {
  const FlatLayout layout({4, 4, 4, 4, 4}, 2, /*round_robin=*/true);
  std::vector<size_t> order;
  for (const PlacedParam& param : layout.params()) order.push_back(param.index);
  EXPECT_EQ(order, (std::vector<size_t>{0, 2, 4, 1, 3}));
  EXPECT_EQ(layout.place(1), (Interval{12, 16}));
}

TEST(FlatLayout, PartitionsCoverEveryElementOnce) {
  for (const int world : {1, 2, 3, 4, 7}) {
    const FlatLayout layout({3, 0, 11, 1, 6}, world, world % 2 == 0);
    std::vector<int> seen(static_cast<size_t>(layout.numel()), 0);
    int64_t padding = 0;
    for (int rank = 0; rank < world; ++rank) {
      padding += layout.padding(rank);
      for (const ParamPiece& piece : layout.pieces(layout.partition(rank))) {
        const int64_t begin = layout.place(piece.index).begin + piece.offset_in_param;
        for (int64_t i = 0; i < piece.in_interval.numel(); ++i) ++seen[static_cast<size_t>(begin + i)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(layout.numel()), 1)) << "world " << world;
    EXPECT_EQ(padding, layout.padded_numel() - layout.numel());
  }
}

TEST(FlatLayout, RefusesImpossibleSizes) {
  EXPECT_ERROR(UsageError, FlatLayout({3}, 0), "world size 0, expected at least 1");
  EXPECT_ERROR(UsageError, FlatLayout({-1}, 2), "parameter 0 has -1 elements");
}

}  // namespace
}  // namespace deepspeed::zero
