#include <set>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/device/threads/core_binding.h"
#include "deepspeed/device/threads/threads.h"

#include "tests/support/error_of.h"

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
  EXPECT_ERROR(UsageError, set_cpu_rng_state(at::Tensor()), "is undefined, expected ", "cpu_rng_state()");
  EXPECT_ERROR(UsageError, set_cpu_rng_state(at::zeros({10}, at::kByte)), "has 10 elements of Byte on cpu",
               "pass what cpu_rng_state() returned");
  EXPECT_ERROR(UsageError, set_cpu_rng_state(cpu_rng_state().to(at::kInt)), "elements of Int on cpu",
               " of Byte on the CPU");
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
  if (num_cuda_devices() == 0) {
    EXPECT_EQ(cuda_allocated_bytes() + cuda_peak_allocated_bytes(), 0);
  }
}

TEST(Threads, AreAnEqualShareOfTheCoresUnlessToldOtherwise) {
  const auto former = env::get("OMP_NUM_THREADS");
  env::set("OMP_NUM_THREADS", std::nullopt);
  EXPECT_EQ(threads_per_rank(1), int(available_cores().size()));
  EXPECT_EQ(threads_per_rank(10000), 1);
  EXPECT_EQ(threads_per_rank(2, 5), 5);
  env::set("OMP_NUM_THREADS", std::string("3,2"));
  EXPECT_EQ(threads_per_rank(2), 3);
  EXPECT_EQ(threads_per_rank(2, 5), 5);
  env::set("OMP_NUM_THREADS", std::string("two"));
  EXPECT_ERROR(UsageError, threads_per_rank(2), "OMP_NUM_THREADS is 'two', expected a whole number");
  env::set("OMP_NUM_THREADS", former);
  EXPECT_ERROR(UsageError, threads_per_rank(0), "local ranks is 0, expected 1 or more");
  EXPECT_ERROR(UsageError, threads_per_rank(1, 0), "threads is 0, expected 1 or more");
}

TEST(Cuda, IsRefusedClearlyIfThereIsNone) {
  if (num_cuda_devices() > 0) GTEST_SKIP() << "this machine has a device";
  EXPECT_NE(why_no_device(), "");
  EXPECT_ERROR(NotSupportedError, set_cuda_device(0), "the CUDA device is 0, but", why_no_device());
  EXPECT_ERROR(NotSupportedError, current_cuda_device(), "there is no CUDA device", why_no_device());
}

}  // namespace
}  // namespace deepspeed::device
