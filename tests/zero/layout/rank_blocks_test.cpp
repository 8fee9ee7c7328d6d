#include "deepspeed/zero/layout/rank_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;

TEST(NodeLayout, HasTheNodeOfARankAndItsLikeOnTheOthers) {
  const NodeLayout two = node_layout({0, 1, 2, 3, 4, 5}, 3, 2);
  EXPECT_THAT(two.node, ElementsAre(2, 3));
  EXPECT_THAT(two.across, ElementsAre(1, 3, 5));
  const NodeLayout all = node_layout({0, 1, 2, 3}, 3, 4);
  EXPECT_THAT(all.node, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(all.across, ElementsAre(3));
  // The data-parallel ranks of one slice, if two ranks share a model.
  const NodeLayout beside_slices = node_layout({1, 3, 5, 7}, 5, 4);
  EXPECT_THAT(beside_slices.node, ElementsAre(5, 7));
  EXPECT_THAT(beside_slices.across, ElementsAre(1, 5));
}

TEST(NodeLayout, RefusesNodesOfDifferentSizes) {
  EXPECT_ERROR(UsageError, node_layout({0, 1, 2}, 0, 2), "node 1 has 1 of the 3 ranks", "rank 0 2",
               "mics_hierarchical_params_gather");
}

TEST(BlockOf, CutsRanksIntoBlocksOfOneSize) {
  EXPECT_THAT(block_of({0, 1, 2, 3}, 2, 2), ElementsAre(2, 3));
  EXPECT_THAT(block_of({1, 3, 5, 7}, 3, 2), ElementsAre(1, 3));
  EXPECT_THAT(block_of({4, 5}, 5, 1), ElementsAre(5));
}

TEST(CounterpartsOf, HaveOnePlaceInEachBlock) {
  EXPECT_THAT(counterparts_of({0, 1, 2, 3}, 3, 2), ElementsAre(1, 3));
  EXPECT_THAT(counterparts_of({1, 3, 5, 7}, 5, 2), ElementsAre(1, 5));
  EXPECT_THAT(counterparts_of({0, 1, 2, 3}, 2, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(counterparts_of({0, 1, 2, 3}, 2, 4), ElementsAre(2));
}

}  // namespace
}  // namespace deepspeed::zero
