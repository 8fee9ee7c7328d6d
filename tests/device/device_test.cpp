#include <set>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/device/threads/threads.h"

namespace deepspeed::device {
namespace {

TEST(Rng, StateBringsBackTheSameNumbers) {
  seed_generators(5);
  at::rand({7});
  const auto state = cpu_rng_state();
  EXPECT_EQ(state.scalar_type(), at::kByte);
  // normal_ keeps a spare value in the state too
  const auto first = at::cat({at::randn({3}), at::rand({20})});
  EXPECT_FALSE(at::equal(at::cat({at::randn({3}), at::rand({20})}), first));
  set_cpu_rng_state(state);
  EXPECT_TRUE(at::equal(at::cat({at::randn({3}), at::rand({20})}), first));
}

TEST(Rng, RefusesAWrongState) {
  EXPECT_THROW(set_cpu_rng_state(at::Tensor()), UsageError);
  EXPECT_THROW(set_cpu_rng_state(at::zeros({10}, at::kByte)), UsageError);
  EXPECT_THROW(set_cpu_rng_state(cpu_rng_state().to(at::kInt)), UsageError);
}

TEST(Rng, SeedsOfStreamsDifferByPurposeRankAndSeed) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const auto stream : {RngStream::kInitialization, RngStream::kDropout, RngStream::kData}) {
      for (int rank = 0; rank < 20; ++rank) seeds.insert(stream_seed(seed, stream, rank));
    }
  }
  EXPECT_EQ(seeds.size(), 20u * 3 * 20);
  EXPECT_EQ(stream_seed(1, RngStream::kData, 2), stream_seed(1, RngStream::kData, 2));
}

TEST(Rng, SeededScopePutsTheFormerStreamBack) {
  seed_generators(9);
  const auto expected = at::rand({4});
  seed_generators(9);
  at::Tensor inside;
  {
    const SeededScope scope(3);
    inside = at::rand({4});
  }
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
  seed_generators(3);
  EXPECT_TRUE(at::equal(at::rand({4}), inside));
}

TEST(Memory, CountsWhatATensorTakes) {
  const auto before = resident_bytes();
  {
    const auto tensor = at::ones({32 << 20}, at::kByte);
    EXPECT_GT(resident_bytes(), before + (28 << 20));
  }
  EXPECT_GT(peak_resident_bytes(), before + (28 << 20));
#ifndef __SANITIZE_ADDRESS__  // it keeps what was freed
  if (reset_peak_resident()) {
    EXPECT_LT(peak_resident_bytes(), before + (16 << 20));
  }
#endif
  if (num_cuda_devices() == 0) {
    EXPECT_EQ(cuda_allocated_bytes() + cuda_peak_allocated_bytes(), 0);
  }
}

TEST(Threads, AreAnEqualShareOfTheCoresUnlessToldOtherwise) {
  const auto former = env::get("OMP_NUM_THREADS");
  env::set("OMP_NUM_THREADS", std::nullopt);
  EXPECT_GE(num_available_cores(), 1);
  EXPECT_EQ(threads_per_rank(1), num_available_cores());
  EXPECT_EQ(threads_per_rank(10000), 1);
  EXPECT_EQ(threads_per_rank(2, 5), 5);
  env::set("OMP_NUM_THREADS", std::string("3,2"));
  EXPECT_EQ(threads_per_rank(2), 3);
  EXPECT_EQ(threads_per_rank(2, 5), 5);
  env::set("OMP_NUM_THREADS", std::string("two"));
  EXPECT_THROW(threads_per_rank(2), UsageError);
  env::set("OMP_NUM_THREADS", former);
  EXPECT_THROW(threads_per_rank(0), UsageError);
  EXPECT_THROW(threads_per_rank(1, 0), UsageError);
}

TEST(Cuda, IsRefusedClearlyInABuildWithoutIt) {
  if (num_cuda_devices() > 0) GTEST_SKIP() << "this build has CUDA";
  EXPECT_THROW(set_cuda_device(0), Error);
}

}  // namespace
}  // namespace deepspeed::device
