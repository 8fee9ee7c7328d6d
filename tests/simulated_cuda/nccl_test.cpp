// What a rank may rely on of NCCL: groups end when their devices are done, and failures come late.
#include "deepspeed/comm/backends/nccl.h"

#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/engine/make_engine.h"
#include "tests/simulated_cuda/tables/tables.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(SimulatedNccl, LetsADeviceFinishBeforeItsGroupEnds) {
  run_ranks(2, [](comm::World& world) {
    comm::ProcessGroup group = world.own_group("ends", "test");
    const at::Tensor own = at::full({8}, double(group.rank() + 1)).to(at::kCUDA),
                     all = at::zeros({16}, own.options());
    group.all_gather(all, own);
    comm::ProcessGroup beside = world.own_group("beside", "test");
    group = {};
    beside.barrier();
    world.shutdown();  // with it what both have let go of
    EXPECT_EQ(all.sum().item<float>(), 24.0F);
  });
}

TEST(SimulatedNccl, FailsLateAndStopsTheStepBeforeWeightsChange) {
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(2, [stage](comm::World& world) {
      SCOPED_TRACE(message("stage ", stage));
      Json zero = {{"stage", stage}};
      if (stage > 0) zero["offload_optimizer"] = {{"device", "cpu"}};
      const auto engine =
          make_engine(basic({{"bf16", {{"enabled", true}}}, {"zero_optimization", zero}}), world);
      const auto train = [&](int step) {
        const auto [inputs, targets] = odd_batch(4 * step, 4);
        engine->backward(engine->forward(inputs.to(at::kCUDA, at::kBFloat16), targets.to(at::kCUDA)));
      };
      train(0);
      engine->step();
      train(1);
      simulated::fail_next_nccl_operation();
      const auto step = [&] {
        engine->step();
        train(2);
        engine->step();
      };
      EXPECT_ERROR(CommError, step(), "timeout");
    });
  }
}

TEST(SimulatedNccl, RefusesATorchThatWasBuiltWithAnotherVersion) {
  simulated::pretend_nccl_of_torch(30);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_ERROR(NotSupportedError, comm::make_nccl_backend({}, store, {}),
               "built with the header of NCCL 2.28", "runs with NCCL 2.30");
  simulated::pretend_nccl_of_torch(28);
}

}  // namespace
}  // namespace deepspeed::testing
