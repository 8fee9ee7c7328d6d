// The time of stage 3's own work in a pass is linear in the number of parameters, not quadratic.
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/zero/param_access.h"

#include "tests/support/run_ranks.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

/// Returns this thread's CPU time, so that other load on the machine does not count.
double cpu_milliseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * double(time.tv_sec) + 1e-6 * double(time.tv_nsec);
}

struct ManyScales : torch::nn::Module {
  explicit ManyScales(int64_t count) {
    for (int64_t index = 0; index < count; ++index)
      scales.push_back(register_parameter(std::to_string(index), at::ones({4})));
  }
  std::vector<at::Tensor> scales;
};

/// Returns the shortest of several passes over `count` parameters, after those that record the trace.
double pass_milliseconds(comm::World& world, int64_t count, const ShardStore::Options& options) {
  const c10::NoGradGuard no_grad;
  const ManyScales model(count);
  const ShardStore store = testing::shard(model, world.group(), options);
  double best = 1e9;
  for (int pass = 0; pass < 5; ++pass) {
    at::Tensor x = at::ones({4});
    const double begin = cpu_milliseconds();
    {
      const ParameterAccess access(store.pool(), AccessMode::kEvaluation);
      for (const at::Tensor& scale : model.scales) x = x * scale;
    }
    if (pass > 1) best = std::min(best, cpu_milliseconds() - begin);
  }
  return best;
}

TEST(ManyParameters, TakeTimeThatGrowsWithTheirNumber) {
  testing::run_ranks(1, [](comm::World& world) {
    ShardStore::Options all_at_once = testing::nothing_persistent();
    ShardStore::Options few_at_once = testing::nothing_persistent(/*max_live_numel=*/1000);
    ShardStore::Options persistent;
    ShardStore::Options sequential = testing::nothing_persistent();
    sequential.pool.keys.stage3_allgather_sequential = true;
    ShardStore::Options short_window = testing::nothing_persistent();
    short_window.pool.keys.stage3_prefetch_bucket_size = 2000;
    short_window.pool.keys.stage3_max_reuse_distance = 100;
    // A factor between 32 and its square, with room for a busy machine.
    for (const auto* options : {&all_at_once, &few_at_once, &persistent, &sequential, &short_window}) {
      const double few = pass_milliseconds(world, 500, *options);
      const double many = pass_milliseconds(world, 16000, *options);
      EXPECT_LT(many, 160 * few) << "32 times as many parameters: " << few << " ms, " << many << " ms";
    }
  });
}

}  // namespace
}  // namespace deepspeed::zero
