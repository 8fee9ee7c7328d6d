#include "deepspeed/zero/layout/zero_groups.h"

#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::zero {
namespace {

comm::ProcessGroup group_of(int size) { return comm::make_fake_world(size).group(); }

TEST(ZeroGroups, CutOverAllDataParallelRanksByDefault) {
  const comm::ProcessGroup data = comm::make_fake_world(4, 3).group();
  const ZeroGroups ranks(data);
  EXPECT_EQ(ranks.data.size(), 4);
  EXPECT_EQ(ranks.shard.size(), 4);
  EXPECT_EQ(ranks.shard.rank(), 3);
  EXPECT_FALSE(ranks.replica);
}

TEST(ZeroGroups, TakeAGroupOfOneReplica) {
  const ZeroGroups ranks(group_of(4), group_of(4), group_of(1));
  EXPECT_EQ(ranks.shard.size(), 4);
  EXPECT_EQ(ranks.replica.size(), 1);
  EXPECT_FALSE(ranks.has_replicas());
  EXPECT_TRUE(ranks.is_first_replica());
}

TEST(ZeroGroups, TakeReplicasOfShards) {
  const ZeroGroups ranks(group_of(4), group_of(2), comm::make_fake_world(2, 1).group());
  EXPECT_TRUE(ranks.has_replicas());
  EXPECT_FALSE(ranks.is_first_replica());
}

TEST(ZeroGroups, RefuseGroupsThatDoNotFillTheDataParallelOne) {
  EXPECT_ERROR(UsageError, ZeroGroups(group_of(4), group_of(2), {}),
               "a group of 2 ranks for shards and one of 1 for replicas, expected a product of 4");
}

TEST(ZeroGroups, AreBlocksAndTheirCounterparts) {
  testing::run_ranks(4, [](comm::World& world) {
    const int rank = world.rank();
    const ZeroGroups ranks = make_zero_groups(world, world.group(), {.num_shards = 2}, "groups");
    EXPECT_EQ(ranks.shard.global_ranks(), rank < 2 ? std::vector({0, 1}) : std::vector({2, 3}));
    EXPECT_EQ(ranks.replica.global_ranks(), rank % 2 == 0 ? std::vector({0, 2}) : std::vector({1, 3}));
    EXPECT_EQ(ranks.is_first_replica(), rank < 2);
    EXPECT_FALSE(ranks.node);
    const ZeroGroups single = make_zero_groups(world, world.group(), {.num_shards = 1}, "groups");
    EXPECT_EQ(single.shard.size(), 1);
    EXPECT_EQ(single.replica.size(), 4);
    const ZeroGroups all = make_zero_groups(world, world.group(), {.num_shards = 4}, "groups");
    EXPECT_EQ(all.shard.size(), 4);
    EXPECT_FALSE(all.replica);
  });
}

TEST(ZeroGroups, HaveTheNodesOfABlock) {
  testing::run_ranks(4, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    const ZeroGroups all = make_zero_groups(world, world.group(), {.by_nodes = true}, "groups");
    EXPECT_EQ(all.node.size(), 2);
    EXPECT_EQ(all.across_nodes.size(), 2);
    const ZeroGroups half = make_zero_groups(world, world.group(), {.num_shards = 2, .by_nodes = true}, "g");
    EXPECT_EQ(half.node.size(), 2);
    EXPECT_EQ(half.across_nodes.size(), 1);
  });
}

TEST(ZeroGroups, AreRefusedOnAllRanksIfNodesCutABlockUnevenly) {
  testing::run_ranks(6, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    EXPECT_ERROR(UsageError,
                 make_zero_groups(world, world.group(), {.num_shards = 3, .by_nodes = true}, "groups"),
                 "of the 3 ranks that hold the model once", "mics_hierarchical_params_gather");
  });
}

}  // namespace
}  // namespace deepspeed::zero
