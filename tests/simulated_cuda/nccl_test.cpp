// What a rank may rely on of NCCL: groups end when their devices are done, and failures come late.
#include "deepspeed/comm/backends/nccl.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

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

/// Trains a pipeline of two stages with tied weights, in which an operation of this group fails on this rank.
void train_until_failure(int failing, const char* group, at::ScalarType dtype) {
  using Linear = torch::nn::Linear;
  const std::vector<LayerSpec> layers = {TiedLayerSpec::of<Linear>("tied", 4, 4), LayerSpec::of<Linear>(4, 4),
                                         LayerSpec::of<Linear>(4, 4),
                                         TiedLayerSpec::of<Linear>("tied", 4, 4)};
  PipelineModuleOptions options{.num_stages = 2, .partition_method = "uniform"};
  options.loss_fn = [](const at::Tensor& output, const at::Tensor& label) {
    return (output - label).square().mean();
  };
  const Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {dtype == at::kHalf ? "fp16" : "bf16", {{"enabled", true}}},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
  const auto module = std::make_shared<PipelineModule>(layers, options);
  const auto engine = initialize(module, {.config = config}).engine;
  const std::vector<pipe::MicroBatch> batch = {{{at::ones({2, 4}, dtype)}, {at::zeros({2, 4}, dtype)}}};
  const auto train = [&] { engine->train_batch(pipe::DataIterator::over(batch)); };
  train();
  if (comm::get_rank() != failing) {
    // This one learns of it from the other, at the latest in the next step.
    EXPECT_THROW(for (int step = 0; step < 3; ++step) train(), CommError);
    return;
  }
  simulated::fail_next_nccl_operation(group);
  EXPECT_ERROR(CommError, train(), group, "longer than the timeout");
}

TEST(SimulatedNccl, FailsTheStepOfAPipelineToo) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [failing, group] : {std::pair(0, ".tied"), std::pair(1, ".tied"),
                                         std::pair(0, ".activations"), std::pair(1, ".gradients")}) {
      SCOPED_TRACE(message(dtype, ", ", group, " on rank ", failing));
      // The ranks do not meet afterwards: the error ends their groups.
      const auto outcomes = fork_ranks(2,
                                       [&](int) {
                                         comm::init_distributed();
                                         train_until_failure(failing, group, dtype);
                                         return std::string();
                                       },
                                       {.end_together = true});
      for (const RankOutcome& outcome : outcomes) {
        for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
      }
    }
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
