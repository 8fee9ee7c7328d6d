// The ends and the failures of c10d's own NCCL backend: what is given to a device late, and what its host
// learns late.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/init.h"

#include "tests/engine/make_engine.h"
#include "tests/null_gpu/null_gpu.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kNumel = 1000;

/// Starts a gather which the device of the last rank comes to late. Returns its result, which nobody has
/// waited for.
at::Tensor gather_late(const comm::ProcessGroup& group) {
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const at::Tensor own = at::full({kNumel}, double(group.rank() + 1), at::kFloat).to(at::kCUDA);
  const at::Tensor all = at::zeros({kNumel * group.size()}, options);
  if (group.rank() + 1 == group.size()) null_gpu::delay(2000);
  group.all_gather(all, own);
  return all;
}

void expect_gathered(const at::Tensor& all) {
  const at::Tensor seen = all.cpu();
  for (int64_t rank = 0; rank < seen.numel() / kNumel; ++rank)
    EXPECT_EQ(seen[rank * kNumel + kNumel - 1].item<float>(), float(rank + 1)) << "part " << rank;
}

TEST(NullGpuNccl, GroupsThatEndLetTheDeviceFinish) {
  run_ranks(2, [](comm::World& world) {
    comm::ProcessGroup group = world.own_group("late", "test");
    const at::Tensor all = gather_late(group);
    group = {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // the guard closes what all have let go of
    expect_gathered(all);
  });
}

TEST(NullGpuNccl, WorldsThatEndLetTheDeviceFinish) {
  run_ranks(2, [](comm::World& world) {
    const at::Tensor all = gather_late(world.group());
    world.shutdown();
    comm::destroy_process_group();
    expect_gathered(all);
  });
}

TEST(NullGpuNccl, FinishesWorkThatNothingWaitsFor) {
  run_ranks(2, [](comm::World& world) {
    comm::ProcessGroup group = world.own_group("late", "test");
    const at::Tensor own = at::full({kNumel}, double(group.rank() + 1), at::kFloat).to(at::kCUDA);
    const at::Tensor all = at::zeros({kNumel * 2}, own.options());
    if (group.rank() == 1) null_gpu::delay(2000);
    group.start_all_gather(all, own);
    group = {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    expect_gathered(all);
  });
}

TEST(NullGpuNccl, StopsTheStepBeforeWeightsChangeIfAFailureComesLate) {
  RunRanksOptions options;
  options.comm_timeout = std::chrono::milliseconds(2000);
  for (const int stage : {0, 1, 2}) {
    run_ranks(
        2,
        [stage](comm::World& world) {
          const auto engine =
              make_engine(basic({{"zero_optimization", {{"stage", stage}}},
                                 {"bf16", {{"enabled", true}, {"check_grad_overflow", true}}}}),
                          world);
          const auto step = [&](int number, int late) {
            const auto [inputs, targets] = odd_batch(4 * number, 4);
            const at::Tensor of_device = inputs.to(at::kCUDA, at::kBFloat16), wanted = targets.to(at::kCUDA);
            null_gpu::delay(late);
            engine->backward(engine->forward(of_device, wanted));
            engine->step();
          };
          step(0, 0);
          EXPECT_ERROR(CommError, step(1, 5000), "group", "timeout");
        },
        options);
  }
}

}  // namespace
}  // namespace deepspeed::testing
