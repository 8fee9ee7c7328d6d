#include "deepspeed/comm/group/group_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::comm {
namespace {

using ::testing::ElementsAre;

TEST(RanksByNode, KeepTheOrderInWhichTheyCome) {
  const auto nodes = ranks_by_node({5, 0, 4, 1, 2}, 2);
  EXPECT_THAT(nodes, ElementsAre(ElementsAre(5, 4), ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(ranks_at_place(nodes, 0), ElementsAre(5, 0, 2));
}

TEST(GroupNodes, AreBlocksOfRanksThatFollowEachOther) {
  const auto world = nodes_of_group({0, 1, 2, 3, 4, 5}, 3, 2);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->num_nodes, 3);
  EXPECT_EQ(world->places, 2);
  EXPECT_THAT(world->node, ElementsAre(2, 3));
  EXPECT_THAT(world->across, ElementsAre(1, 3, 5));
  // The group of one slice of a model that two ranks split.
  const auto beside_slices = nodes_of_group({1, 3, 5, 7}, 2, 4);
  ASSERT_TRUE(beside_slices);
  EXPECT_THAT(beside_slices->node, ElementsAre(5, 7));
  EXPECT_THAT(beside_slices->across, ElementsAre(1, 5));
  const auto last_node_first = nodes_of_group({2, 3, 0, 1}, 1, 2);
  ASSERT_TRUE(last_node_first);
  EXPECT_THAT(last_node_first->node, ElementsAre(2, 3));
  EXPECT_THAT(last_node_first->across, ElementsAre(3, 1));
}

TEST(GroupNodes, AreNoneWhereNothingWouldBeGained) {
  EXPECT_FALSE(nodes_of_group({0, 1, 2, 3}, 0, 4)) << "one node";
  EXPECT_FALSE(nodes_of_group({0, 2}, 0, 2)) << "one rank a node";
  EXPECT_FALSE(nodes_of_group({0, 1, 2, 3}, 0, 1));
  EXPECT_FALSE(nodes_of_group({0, 1, 2, 3}, 0, 0));
}

TEST(GroupNodes, AreNoneWhereRanksLieOtherwise) {
  EXPECT_FALSE(nodes_of_group({0, 1, 2}, 0, 2)) << "nodes of different size";
  EXPECT_FALSE(nodes_of_group({0, 1, 2, 3}, 0, 3)) << "nodes of different size";
  EXPECT_FALSE(nodes_of_group({0, 2, 1, 3}, 0, 2)) << "not node by node";
  EXPECT_FALSE(nodes_of_group({0, 1, 4, 5, 2, 3}, 0, 4)) << "a node twice";
}

}  // namespace
}  // namespace deepspeed::comm
