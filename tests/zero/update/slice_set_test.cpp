// What a rank owns of a group, cut into slices, with masters as checkpoints see them. One rank of two is
// enough, since a set sends nothing.
#include "deepspeed/zero/update/slice_set.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/comm/fake.h"
#include "deepspeed/optim/factory.h"

namespace deepspeed::zero {
namespace {

/// Is rank 1 of two, at stage 1. Of 10 + 8 elements 0.001, 1.001, ... it owns the last 9.
struct SecondOfTwo {
  explicit SecondOfTwo(at::ScalarType dtype, const StepOptions& options)
      : world(comm::make_fake_world(2, 1)),
        optimizer(optim::make_optimizer("AdamW", {{"lr", 0.1}}, {optim::ParamGroup{}})),
        store({{{"a", at::arange(10, at::kFloat) + 0.001}, {"b", at::arange(10, 18, at::kFloat) + 0.001}}},
              world.size(), {dtype, /*round_robin=*/false, /*stage=*/1}),
        slices(store, *optimizer, world.group(), options, /*accumulation_dtype=*/{}) {}

  Interval all() const { return {0, slices.owned(0).numel()}; }
  at::Tensor owned_weights() const {
    const Interval owned = slices.owned(0);
    return store.groups()[0].flat.narrow(0, owned.begin, owned.numel());
  }

  comm::World world;
  std::unique_ptr<optim::Optimizer> optimizer;
  ParamStore store;
  SliceSet slices;
};

StepOptions offloaded(int64_t piece_numel) {
  StepOptions options;
  options.offload.device = OffloadDevice::kCpu;
  options.offload.piece_numel = piece_numel;
  return options;
}

TEST(SliceSet, CutsWhatTheRankOwnsIntoPiecesWhereTheOptimizerIsOffloaded) {
  const SecondOfTwo whole(at::kBFloat16, {});
  ASSERT_EQ(whole.slices.size(), 1u);
  EXPECT_EQ(whole.slices[0].interval, whole.all());

  const SecondOfTwo cut(at::kBFloat16, offloaded(4));
  const int64_t numel = cut.all().numel();
  ASSERT_EQ(cut.slices.size(), static_cast<size_t>((numel + 3) / 4));
  int64_t end = 0;
  for (const size_t index : cut.slices.all()) {
    EXPECT_EQ(cut.slices[index].interval.begin, end);
    EXPECT_LE(cut.slices[index].interval.numel(), 4);
    end = cut.slices[index].interval.end;
  }
  EXPECT_EQ(end, numel);
}

TEST(SliceSet, ShowsAPartThatSeveralSlicesHold) {
  SecondOfTwo rank(at::kBFloat16, offloaded(4));
  const GroupState state = rank.slices.state(0, {2, 7});
  ASSERT_EQ(state.master.numel(), 5);
  EXPECT_EQ(state.master.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(state.master, rank.owned_weights().narrow(0, 2, 5).to(at::kFloat)));
}

TEST(SliceSet, RoundsChangedMastersIntoTheWeightsAndMakesThemAnewOfThese) {
  SecondOfTwo rank(at::kBFloat16, offloaded(4));
  rank.slices.visit(0, {4, 8}, SliceSet::Access::kChange,
                    [](const StateSlice& slice) { slice.master.fill_(1.0 + 1.0 / 1024); });
  const at::Tensor before = rank.owned_weights().clone();
  rank.slices.write_weights();
  EXPECT_TRUE(at::equal(rank.owned_weights().narrow(0, 0, 4), before.narrow(0, 0, 4)));
  EXPECT_TRUE(at::equal(rank.owned_weights().narrow(0, 4, 4), at::ones({4}, at::kBFloat16)));
  EXPECT_EQ(rank.slices.state(0, {4, 5}).master.item<float>(), 1.0f + 1.0f / 1024);
  rank.slices.read_weights();
  EXPECT_EQ(rank.slices.state(0, {4, 5}).master.item<float>(), 1.0f);
}

TEST(SliceSet, JoinsSplitMastersForAsLongAsSomebodyLooks) {
  StepOptions options = offloaded(4);
  options.split_masters = true;
  SecondOfTwo rank(at::kBFloat16, options);
  EXPECT_EQ(rank.slices.master_bytes(), 2 * rank.all().numel());
  rank.slices.visit(0, {0, 4}, SliceSet::Access::kChange,
                    [](const StateSlice& slice) { slice.master.fill_(1.0 + 1.0 / 1024); });
  EXPECT_EQ(rank.slices.state(0, {0, 1}).master.item<float>(), 1.0f + 1.0f / 1024);
  EXPECT_EQ(rank.slices.resident_state(0).front().master.scalar_type(), at::kShort);
  EXPECT_FALSE(rank.slices.states_beside_masters(0, {0, 4}).master.defined());
}

TEST(SliceSet, KeepsNoMastersOfAModelInFp32) {
  SecondOfTwo rank(at::kFloat, {});
  EXPECT_EQ(rank.slices.master_bytes(), 0);
  EXPECT_TRUE(rank.slices.state(0, rank.all()).master.is_alias_of(rank.owned_weights()));
}

}  // namespace
}  // namespace deepspeed::zero
