#include "deepspeed/zero/layout/zero_groups.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"

#include "tests/support/error_of.h"

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
}

TEST(ZeroGroups, RefuseReplicasAndNameTheOptionsThatAskForThem) {
  EXPECT_ERROR(NotSupportedError, ZeroGroups(group_of(4), group_of(2), group_of(2)),
               "each shard would be held by 2 ranks, expected 1", "mics_shard_size to -1");
}

TEST(ZeroGroups, RefuseGroupsThatDoNotFillTheDataParallelOne) {
  EXPECT_ERROR(UsageError, ZeroGroups(group_of(4), group_of(2), {}),
               "a group of 2 ranks for shards and one of 1 for replicas, expected a product of 4");
}

}  // namespace
}  // namespace deepspeed::zero
