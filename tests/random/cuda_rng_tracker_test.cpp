#include "deepspeed/random/cuda_rng_tracker.h"

#include <stdexcept>

#include <ATen/ops/rand.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/random/generator_state.h"

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

at::Tensor drawn_at(uint64_t seed) {
  const device::SeededScope scope(seed);
  return at::rand({3});
}

class CudaRngTracker : public ::testing::Test {
 protected:
  ~CudaRngTracker() override { get_cuda_rng_tracker().reset(); }
  CudaRNGStatesTracker tracker_;
};

TEST_F(CudaRngTracker, DrawsFromTheStreamAndLeavesTheDefaultOneWhereItWas) {
  tracker_.add("a", 5);
  device::seed_generators(1);
  at::Tensor first;
  {
    const auto fork = tracker_.fork("a");
    first = at::rand({3});
  }
  EXPECT_TRUE(first.equal(drawn_at(5)));
  EXPECT_TRUE(at::rand({3}).equal(drawn_at(1)));
  const auto fork = tracker_.fork("a");
  EXPECT_FALSE(at::rand({3}).equal(first));  // the stream has moved on
}

TEST_F(CudaRngTracker, RestoresTheStateIfTheForkEndsByAnError) {
  tracker_.add("a", 5);
  device::seed_generators(1);
  try {
    const auto fork = tracker_.fork("a");
    at::rand({3});
    throw std::runtime_error("in the fork");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(at::rand({3}).equal(drawn_at(1)));
}

TEST_F(CudaRngTracker, RepeatsAStreamFromItsState) {
  tracker_.add("a", 5);
  const auto states = tracker_.get_states();
  const auto draw = [&] {
    const auto fork = tracker_.fork("a");
    return at::rand({3});
  };
  const auto first = draw();
  tracker_.set_states(states);
  EXPECT_TRUE(draw().equal(first));
}

TEST_F(CudaRngTracker, RefusesNamesAndSeedsThatAreTaken) {
  tracker_.add("a", 5);
  EXPECT_ERROR(UsageError, tracker_.add("b", 5), "seed 5 already exists", "'b'");
  EXPECT_ERROR(UsageError, tracker_.add("a", 6), "cuda rng state a already exists");
  EXPECT_ERROR(UsageError, (void)tracker_.fork("c"), "cuda rng state c is not added",
               "model_parallel_cuda_manual_seed()");
  tracker_.reset();
  tracker_.add("a", 5);
  EXPECT_EQ(tracker_.get_states().size(), 1U);
}

TEST_F(CudaRngTracker, SeedsAModelParallelRankWithTheOffset) {
  model_parallel_cuda_manual_seed(10, 3);
  EXPECT_TRUE(at::rand({3}).equal(drawn_at(10)));
  {
    const auto fork = get_cuda_rng_tracker().fork();
    EXPECT_TRUE(at::rand({3}).equal(drawn_at(10 + 2718 + 3)));
  }
  model_parallel_reconfigure_tp_seed(20, 3);
  const auto fork = get_cuda_rng_tracker().fork();
  EXPECT_TRUE(at::rand({3}).equal(drawn_at(20 + 2718 + 3)));
  EXPECT_ERROR(UsageError, model_parallel_cuda_manual_seed(1, -1), "model-parallel rank", "-1");
}

TEST_F(CudaRngTracker, IsPutBackWithTheGenerators) {
  model_parallel_cuda_manual_seed(10);
  const auto draw = [] {
    const auto fork = get_cuda_rng_tracker().fork();
    return at::rand({3});
  };
  const auto states = GeneratorStates::now();
  const auto plain = at::rand({3});
  const auto tracked = draw();
  const auto next_plain = [&] {
    const PreserveGenerators preserve;
    return at::rand({3});
  }();
  {
    const PreserveGenerators repeat(states);
    EXPECT_TRUE(at::rand({3}).equal(plain));
    EXPECT_TRUE(draw().equal(tracked));
  }
  EXPECT_TRUE(at::rand({3}).equal(next_plain));
  EXPECT_FALSE(draw().equal(tracked));
}

}  // namespace
}  // namespace deepspeed
