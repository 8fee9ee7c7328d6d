#include "deepspeed/zero/gradients/buckets/bucket_space.h"

#include <memory>
#include <vector>

#include <ATen/ops/full.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/comm/fake.h"
#include "deepspeed/zero/params/shard_store.h"

#include "tests/zero/params/sharded_model.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using testing::floats_of;
using testing::marked_values;
using testing::Shapes;

constexpr float kUntouched = -1;
const Shapes kSpaceShapes = {{3}, {2, 2}, {2}};

/// Holds a store and its space, on one rank of a fake world.
struct SpaceOfRank {
  SpaceOfRank(std::unique_ptr<ParamStore> made, const comm::ProcessGroup& group, std::vector<Interval> owned)
      : store(std::move(made)),
        buckets(make_buckets(store->layouts(), 1000)),
        space(make_bucket_space(*store, group, std::move(owned))) {}

  const Bucket& bucket() const { return buckets.front(); }
  at::Tensor buffer() const { return at::full({space->numel(bucket())}, kUntouched); }

  std::unique_ptr<ParamStore> store;
  std::vector<Bucket> buckets;
  std::unique_ptr<BucketSpace> space;
};

// 9 elements, padded to 12: partitions of 6.
SpaceOfRank flat_space(int rank) {
  auto store = std::make_unique<ParamStore>(std::vector<NamedTensors>{testing::marked_params(kSpaceShapes)},
                                            2, ParamStore::Options{});
  std::vector<Interval> owned = {store->groups().front().layout.partition(rank)};
  return {std::move(store), comm::make_fake_world(2, rank).group(), std::move(owned)};
}

// On three ranks, shards of 1, 2 and 1 elements.
SpaceOfRank shard_space(int rank) {
  const comm::ProcessGroup group = comm::make_fake_world(3, rank).group();
  return {std::make_unique<ShardStore>(std::vector<NamedTensors>{testing::marked_params(kSpaceShapes)},
                                       NamedTensors{}, ZeroGroups(group), testing::nothing_persistent()),
          group,
          {}};
}

TEST(FlatBucketSpace, PutsOneParameterAfterTheOther) {
  const SpaceOfRank flat = flat_space(0);
  EXPECT_TRUE(flat.space->is_as_in_parameter());
  const at::Tensor buffer = flat.buffer();
  CopyBatch copies;
  flat.space->put(flat.bucket(), 1, marked_values(kSpaceShapes, 1), buffer, copies);
  EXPECT_THAT(floats_of(buffer), ElementsAre(-1, -1, -1, 200, 201, 202, 203, -1, -1));
  flat.space->put(flat.bucket(), 0, marked_values(kSpaceShapes, 0), buffer, copies);
  flat.space->put(flat.bucket(), 2, marked_values(kSpaceShapes, 2), buffer, copies);
  flat.space->add(flat.bucket(), 0, marked_values(kSpaceShapes, 0, 10), buffer);
  flat.space->put_zeros(flat.bucket(), 2, buffer);
  EXPECT_THAT(floats_of(buffer), ElementsAre(1100, 1111, 1122, 200, 201, 202, 203, 0, 0));
  const std::vector<at::Tensor> gradients = flat.space->gradients(flat.bucket(), buffer);
  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_THAT(floats_of(gradients[1]), ElementsAre(200, 201, 202, 203));
}

TEST(FlatBucketSpace, CutsABucketWherePartitionsMeet) {
  for (int rank = 0; rank < 2; ++rank) {
    const SpaceOfRank flat = flat_space(rank);
    // The last three elements of the second partition are padding, which is in no bucket.
    EXPECT_THAT(flat.space->owned(flat.bucket()), ElementsAre(Interval{0, 6}, Interval{6, 9}));
    const PartOfBucket own = flat.space->own_part(flat.bucket());
    EXPECT_EQ(own.in_buffer, (rank == 0 ? Interval{0, 6} : Interval{6, 9}));
    EXPECT_EQ(own.in_kept, (rank == 0 ? Interval{0, 6} : Interval{0, 3}));
  }
}

TEST(FlatBucketSpace, CountsFromTheBeginOfABucketAndOfWhatIsKept) {
  SpaceOfRank flat = flat_space(1);
  flat.buckets = make_buckets(flat.store->layouts(), 4);  // (p2), (p1), (p0)
  ASSERT_EQ(flat.buckets.size(), 3U);
  const Bucket& last = flat.buckets[0];
  EXPECT_EQ(flat.space->numel(last), 2);
  EXPECT_THAT(flat.space->owned(last), ElementsAre(Interval{0, 0}, Interval{0, 2}));
  EXPECT_EQ(flat.space->own_part(last).in_kept, (Interval{1, 3}));
  const Bucket& middle = flat.buckets[1];  // [3, 7): three elements belong to rank 0
  EXPECT_THAT(flat.space->owned(middle), ElementsAre(Interval{0, 3}, Interval{3, 4}));
  EXPECT_EQ(flat.space->own_part(middle).in_buffer, (Interval{3, 4}));
  EXPECT_EQ(flat.space->own_part(middle).in_kept, (Interval{0, 1}));
  EXPECT_TRUE(flat.space->own_part(flat.buckets[2]).in_kept.empty());
}

TEST(ShardBucketSpace, PutsTheShardsOfEachRankTogether) {
  const SpaceOfRank sharded = shard_space(0);
  EXPECT_FALSE(sharded.space->is_as_in_parameter());
  ASSERT_EQ(sharded.space->numel(sharded.bucket()), 12);
  const at::Tensor buffer = sharded.buffer();
  CopyBatch copies;
  for (size_t param = 0; param < kSpaceShapes.size(); ++param)
    sharded.space->put(sharded.bucket(), param, marked_values(kSpaceShapes, param), buffer, copies);
  EXPECT_THAT(floats_of(buffer), ElementsAre(100, 200, 201, 300,  //
                                             101, 202, 203, 301,  //
                                             102, 0, 0, 0));      // padding
  for (size_t param = 0; param < kSpaceShapes.size(); ++param)
    sharded.space->add(sharded.bucket(), param, marked_values(kSpaceShapes, param), buffer);
  EXPECT_THAT(floats_of(buffer), ElementsAre(200, 400, 402, 600, 202, 404, 406, 602, 204, 0, 0, 0));
  sharded.space->put_zeros(sharded.bucket(), 1, buffer);
  EXPECT_THAT(floats_of(buffer), ElementsAre(200, 0, 0, 600, 202, 0, 0, 602, 204, 0, 0, 0));
  const std::vector<at::Tensor> gradients = sharded.space->gradients(sharded.bucket(), buffer);
  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_THAT(floats_of(gradients[0]), ElementsAre(200, 202, 204));
  EXPECT_THAT(floats_of(gradients[2]), ElementsAre(600, 602, 0));
}

TEST(ShardBucketSpace, CutsAShardThatTheGradientFillsInPart) {
  const Shapes shapes = {{7}};  // shards of 3: the last has one element and two of padding
  const comm::ProcessGroup group = comm::make_fake_world(3, 2).group();
  ShardStore store({testing::marked_params(shapes)}, {}, ZeroGroups(group), testing::nothing_persistent());
  const auto space = make_bucket_space(store, group, {});
  const Bucket bucket = make_buckets(store.layouts(), 1000).front();
  const at::Tensor buffer = at::full({9}, kUntouched);
  CopyBatch copies;
  space->put(bucket, 0, marked_values(shapes, 0), buffer, copies);
  EXPECT_THAT(floats_of(buffer), ElementsAre(100, 101, 102, 103, 104, 105, 106, 0, 0));
}

TEST(ShardBucketSpace, GivesEachRankItsRow) {
  for (int rank = 0; rank < 3; ++rank) {
    const SpaceOfRank sharded = shard_space(rank);
    EXPECT_THAT(sharded.space->owned(sharded.bucket()),
                ElementsAre(Interval{0, 4}, Interval{4, 8}, Interval{8, 12}));
    const PartOfBucket own = sharded.space->own_part(sharded.bucket());
    EXPECT_EQ(own.in_buffer, (Interval{4 * rank, 4 * rank + 4}));
    EXPECT_EQ(own.in_kept, (Interval{0, 4}));
  }
}

}  // namespace
}  // namespace deepspeed::zero
