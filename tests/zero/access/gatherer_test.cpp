#include "deepspeed/zero/access/gatherer.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/zero/access/poolless_params.h"

namespace deepspeed::zero {
namespace {

using State = Gatherable::State;

constexpr int kRanks = 2;
constexpr int64_t kLarge = 2 * 65536;  // its shards of 256 KiB travel alone

/// Returns each shard once for each rank, or fails.
class RepeatedShards final : public ShardGather {
 public:
  RepeatedShards(std::vector<std::shared_ptr<Shard>> shards, int num_ranks, at::ScalarType dtype, bool fails)
      : shards_(std::move(shards)), num_ranks_(num_ranks), dtype_(dtype), fails_(fails) {}

  at::Tensor take(size_t index) override {
    if (fails_) raise<CommError>("a rank is gone");
    return shards_.at(index)->memory().to(dtype_).repeat({num_ranks_});
  }

 private:
  std::vector<std::shared_ptr<Shard>> shards_;
  int num_ranks_;
  at::ScalarType dtype_;
  bool fails_;
};

class GathererTest : public ::testing::Test {
 protected:
  struct Call {
    size_t num_shards;
    GatherRoute route;
    bool operator==(const Call&) const = default;
  };

  Gatherer& make(GathererOptions options = {}) {
    options.num_ranks = kRanks;
    const int num_near = options.num_near;
    return gatherer.emplace(
        options,
        [this, num_near](std::vector<std::shared_ptr<Shard>> shards, at::ScalarType dtype, at::Device,
                         const GatherRoute& route) {
          calls.push_back({shards.size(), route});
          return std::make_shared<RepeatedShards>(std::move(shards), route.is_near ? num_near : kRanks, dtype,
                                                  fails);
        },
        live);
  }
  Gatherable& add(const std::string& name, int64_t numel, PartitionedTraits traits = {}, double value = 1.0) {
    Gatherable& param = made.add(name, numel, traits, kRanks, value);
    table.add(param);
    return param;
  }
  std::vector<Call> take_calls() { return std::exchange(calls, {}); }

  testing::PoollessParams made;
  ParamTable table;
  LookAhead ahead{{}, 0, table};
  LiveParams live{1'000'000, table, ahead};
  std::optional<Gatherer> gatherer;
  std::vector<Call> calls;
  bool fails = false;
};

const GatherRoute kExact{};
const GatherRoute kNear{.is_near = true};

TEST_F(GathererTest, SendsSmallParametersTogetherAndLargeOnesAlone) {
  Gatherable &a = add("a", 4, {}, 2.0), &large = add("b", kLarge), &c = add("c", 6, {}, 3.0);
  Gatherer& gather = make();
  gather.start({&a, &large, &c});
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}, {2, kExact}}));
  EXPECT_EQ(a.state, State::kGathering);
  EXPECT_EQ(live.numel(), 10 + kLarge);
  gather.finish(c);
  EXPECT_EQ(c.state, State::kWhole);
  EXPECT_EQ(a.state, State::kGathering);
  EXPECT_EQ(made.tensor(c).sum().item<double>(), 18.0);
  gather.make_whole(a);
  EXPECT_EQ(made.tensor(a).sum().item<double>(), 8.0);
  gather.make_whole(a);
  EXPECT_TRUE(calls.empty());
}

TEST_F(GathererTest, SendsEachParameterAloneWhereTheConfigSaysSo) {
  Gatherable &a = add("a", 4), &b = add("b", 6);
  GathererOptions options;
  options.keys.stage3_allgather_sequential = true;
  options.keys.stage3_use_all_reduce_for_fetch_params = true;
  make(options).start({&a, &b});
  const GatherRoute reduced{.is_near = false, .fetch = Fetch::kAllReduce};
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, reduced}, {1, reduced}}));
}

TEST_F(GathererTest, MakesACopyOfAWholeParameterWithoutACollective) {
  Gatherable& a = add("a", 4, {}, 2.0);
  Gatherer& gather = make();
  gather.make_whole(a);
  take_calls();
  Gatherable &copy = made.add_copy(a, at::kBFloat16), &stale = made.add_copy(a, at::kHalf);
  gather.make_whole(copy);
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(made.tensor(copy).sum().item<double>(), 8.0);
  ++a.version;
  EXPECT_ERROR(UsageError, gather.start({&stale}), "parameter 'a' was changed", "run backward before step()");
}

TEST_F(GathererTest, GathersACopyFromTheShardsOfItsParameter) {
  const Gatherable& a = add("a", 4, {}, 2.0);
  Gatherable& copy = made.add_copy(a, at::kBFloat16);
  make().make_whole(copy);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}}));
  EXPECT_EQ(a.state, State::kPartitioned);
  EXPECT_EQ(made.tensor(copy).sum().item<double>(), 8.0);
}

TEST_F(GathererTest, RoundsMatricesInPassesAndNoNormsNorWhatIsHeld) {
  GathererOptions options;
  options.keys.zero_quantized_weights = true;
  Gatherable &matrix = add("matrix", 4), &norm = add("norm", 4, {.is_persistent = true, .is_matrix = false});
  Gatherer& gather = make(options);
  gather.start({&matrix, &norm});
  const GatherRoute rounded{.is_near = false, .fetch = Fetch::kQuantizedAllGather};
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}, {1, rounded}}));
  EXPECT_TRUE(matrix.is_rounded);
  EXPECT_FALSE(norm.is_rounded);
  gather.finish(matrix);
  gather.make_exactly_whole(matrix);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}}));
  EXPECT_FALSE(matrix.is_rounded);
}

TEST_F(GathererTest, LeavesRoundedValuesToTheOperatorThatUsesThem) {
  GathererOptions options;
  options.keys.zero_quantized_weights = true;
  Gatherable& matrix = add("matrix", 4);
  Gatherer& gather = make(options);
  gather.make_whole(matrix);
  matrix.num_uses = 1;
  take_calls();
  gather.make_exactly_whole(matrix);
  EXPECT_TRUE(calls.empty());
  EXPECT_TRUE(matrix.is_rounded);
}

TEST_F(GathererTest, GathersFromNearRanksUntilTheShardsChange) {
  Gatherable& a = add("a", 4, {}, 2.0);
  Gatherable& persistent = add("b", 4, {.is_persistent = true});
  Gatherer& gather = make({.num_near = 1, .near_rank = 0});
  for (Gatherable* const param : {&a, &persistent}) {
    gather.make_whole(*param);
    live.release(*param);
  }
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}, {1, kExact}}));
  EXPECT_TRUE(a.has_secondary());
  EXPECT_FALSE(persistent.has_secondary());
  gather.make_whole(a);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kNear}}));
  EXPECT_EQ(made.tensor(a).sum().item<double>(), 8.0);
  live.release(a);
  ++a.version;
  gather.make_whole(a);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}}));
}

TEST_F(GathererTest, GathersExactValuesFromAllRanksWhereTheSecondaryPartIsRounded) {
  Gatherable& a = add("a", 4);
  Gatherer& gather = make({.num_near = 1});
  gather.make_whole(a);
  live.release(a);
  a.secondary.is_rounded = true;
  take_calls();
  gather.start_one(a);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kNear}}));
  EXPECT_TRUE(a.is_rounded);
  gather.finish(a);
  live.release(a);
  gather.start_one(a, /*exact=*/true);
  EXPECT_EQ(take_calls(), (std::vector<Call>{{1, kExact}}));
}

TEST_F(GathererTest, LeavesAParameterPartitionedWhoseGatherFails) {
  Gatherable &a = add("a", 4), &b = add("b", 4);
  Gatherer& gather = make();
  fails = true;
  gather.start({&a, &b});
  EXPECT_ERROR(CommError, gather.finish(a), "a rank is gone");
  EXPECT_EQ(a.state, State::kPartitioned);
  gather.finish_unwanted(b);
  EXPECT_EQ(b.state, State::kPartitioned);
  EXPECT_EQ(live.numel(), 0);
}

TEST_F(GathererTest, RefusesToStartWhileSuspended) {
  Gatherable& a = add("a", 4);
  Gatherer& gather = make();
  gather.suspend("its shards are elsewhere");
  EXPECT_ERROR(UsageError, gather.make_whole(a), "parameter 'a'", "its shards are elsewhere");
  EXPECT_EQ(a.state, State::kPartitioned);
  gather.resume();
  gather.make_whole(a);
  EXPECT_EQ(a.state, State::kWhole);
}

}  // namespace
}  // namespace deepspeed::zero
