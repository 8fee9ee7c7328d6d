#include "deepspeed/zero/update/step_cut.h"

#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

TEST(StepCut, MakesEqualPiecesOfAtMostTheSizeAskedFor) {
  EXPECT_EQ(equal_pieces(10, 4), (std::vector<Interval>{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(equal_pieces(8, 4), (std::vector<Interval>{{0, 4}, {4, 8}}));
  EXPECT_EQ(equal_pieces(3, 1'000'000'000), (std::vector<Interval>{{0, 3}}));
  EXPECT_EQ(equal_pieces(3, 0), (std::vector<Interval>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(equal_pieces(0, 5), (std::vector<Interval>{{0, 0}}));
}

TEST(StepCut, MakesNoMorePiecesThanAStepCanBear) {
  const auto pieces = equal_pieces(int64_t{1} << 40, 1);
  EXPECT_EQ(pieces.size(), 4096u);
  EXPECT_EQ(pieces.back().end, int64_t{1} << 40);
}

TEST(StepCut, CountsTheFirstPiecesWithinARatioOfTheElements) {
  const std::vector<Interval> pieces = {{0, 10}, {10, 40}, {40, 50}, {50, 100}};
  EXPECT_EQ(count_within(pieces, 0.0), 0u);
  EXPECT_EQ(count_within(pieces, 0.05), 0u);
  EXPECT_EQ(count_within(pieces, 0.1), 1u);
  EXPECT_EQ(count_within(pieces, 0.45), 2u);
  EXPECT_EQ(count_within(pieces, 0.999), 3u);
  EXPECT_EQ(count_within(pieces, 1.0), 4u);
}

}  // namespace
}  // namespace deepspeed::zero
