#include "deepspeed/zero/layout/replica_sum.h"

#include <torch/types.h>

#include <gtest/gtest.h>

#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::zero {
namespace {

using testing::run_ranks;

TEST(ReplicaSum, AddsUpInTheDtypeThatIsAskedFor) {
  run_ranks(3, [](comm::World& world) {
    const auto notes = std::make_shared<testing::CallNotes>();
    const comm::ProcessGroup group = testing::counted_world(world, notes).group();
    const at::Tensor own = at::full({1000}, 1.0 + 0.001 * world.rank());
    const auto sum_in = [&](std::optional<at::ScalarType> dtype, const at::Tensor& values) {
      notes->clear();
      const at::Tensor sums = values.clone();
      ReplicaSum(group, dtype, at::kCPU).add_up(sums);
      return sums;
    };
    EXPECT_TRUE(at::allclose(sum_in({}, own), at::full({1000}, 3.003), 1e-6));
    EXPECT_EQ(notes->at(0).bytes, 4000);
    EXPECT_TRUE(at::allclose(sum_in(at::kBFloat16, own), at::full({1000}, 3.0), 0.02));
    EXPECT_EQ(notes->at(0).bytes, 2000);
    EXPECT_TRUE(at::allclose(sum_in(at::kFloat, own.to(at::kHalf)), at::full({1000}, 3.003).to(at::kHalf)));
    EXPECT_EQ(notes->at(0).bytes, 4000);
    EXPECT_TRUE(sum_in(at::kFloat, own.to(at::kDouble)).dtype() == at::kDouble);
    EXPECT_EQ(notes->at(0).bytes, 8000);  // float means double for doubles
    sum_in({}, at::zeros({0}));
    EXPECT_TRUE(notes->empty());
  });
}

TEST(ReplicaSum, CutsWhatItConvertsIntoPieces) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<testing::CallNotes>();
    const at::Tensor sums = at::ones({(4 << 20) + 3}, at::kBFloat16);
    ReplicaSum(testing::counted_world(world, notes).group(), at::kFloat, at::kCPU).add_up(sums);
    EXPECT_EQ(notes->size(), 2U);
    EXPECT_TRUE(sums.equal(at::full_like(sums, 2)));
  });
}

TEST(ReplicaSum, AddsMoreAfterASum) {
  run_ranks(3, [](comm::World& world) {
    const ReplicaSum replicas(world.group(), {}, at::kCPU);
    const at::Tensor sums = at::full({4}, 1.0 + world.rank());
    replicas.add_up(sums);
    replicas.reopen(sums);
    sums.add_(10);
    replicas.add_up(sums);
    EXPECT_TRUE(sums.equal(at::full({4}, 36.0)));
  });
}

TEST(ReplicaSum, HasNothingToDoWithoutReplicas) {
  const ReplicaSum none({}, at::kBFloat16, at::kCPU);
  EXPECT_FALSE(none.is_needed());
  const at::Tensor sums = at::full({2}, 0.1);
  none.add_up(sums);
  none.reopen(sums);
  EXPECT_TRUE(sums.equal(at::full({2}, 0.1)));
}

}  // namespace
}  // namespace deepspeed::zero
