#include "deepspeed/random/rng_tracker.h"

#include <ATen/ops/rand.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/random/generator_states.h"

#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

at::Tensor drawn() { return at::rand({4}); }

TEST(RngTracker, StreamsGoOnWhereTheyWereAndLeaveTheOthersAlone) {
  CudaRNGStatesTracker tracker;
  device::seed_generators(1);
  const at::Tensor first = drawn(), second = drawn();
  device::seed_generators(7);
  const at::Tensor other_first = drawn(), other_second = drawn();

  device::seed_generators(1);
  tracker.add("other", 7);
  EXPECT_TRUE(drawn().equal(first));
  {
    const auto fork = tracker.fork("other");
    EXPECT_TRUE(drawn().equal(other_first));
  }
  EXPECT_TRUE(drawn().equal(second));
  const auto fork = tracker.fork("other");
  EXPECT_TRUE(drawn().equal(other_second));
}

TEST(RngTracker, RefusesWhatDeepSpeedRefuses) {
  CudaRNGStatesTracker tracker;
  tracker.add("one", 3);
  EXPECT_TRUE(throws_error<UsageError>([&] { tracker.add("two", 3); }, {"seed 3 already exists"}));
  EXPECT_TRUE(
      throws_error<UsageError>([&] { tracker.add("one", 4); }, {"cuda rng state one already exists"}));
  EXPECT_TRUE(throws_error<UsageError>([&] { const auto fork = tracker.fork("two"); },
                                       {"cuda rng state two is not added"}));
  tracker.reset();
  EXPECT_TRUE(tracker.get_states().empty());
  tracker.add("two", 3);
}

TEST(RngTracker, ModelParallelRanksDrawTheSameOutsideAndOthersInside) {
  const auto draw_as = [](int rank) {
    model_parallel_cuda_manual_seed(11, rank);
    const at::Tensor outside = drawn();
    const auto fork = get_cuda_rng_tracker().fork();
    return std::pair(outside, drawn());
  };
  const auto [outside_0, inside_0] = draw_as(0);
  const auto [outside_1, inside_1] = draw_as(1);
  EXPECT_TRUE(outside_0.equal(outside_1));
  EXPECT_FALSE(inside_0.equal(inside_1));
  device::seed_generators(11 + 2718 + 1);
  EXPECT_TRUE(drawn().equal(inside_1));
}

TEST(GeneratorScope, PutsEverythingBackAlsoAfterAnError) {
  model_parallel_cuda_manual_seed(5);
  const GeneratorStates before = GeneratorStates::now();
  const at::Tensor expected = drawn();
  before.restore();
  try {
    const GeneratorScope scope(before);
    drawn();
    const auto fork = get_cuda_rng_tracker().fork();
    drawn();
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(drawn().equal(expected));
  EXPECT_TRUE(
      get_cuda_rng_tracker().get_states().at(kModelParallelRng).equal(before.tracker.at(kModelParallelRng)));
}

}  // namespace
}  // namespace deepspeed::testing
