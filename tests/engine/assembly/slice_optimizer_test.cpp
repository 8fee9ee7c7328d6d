// Optimizers of the program's own that step flat slices, at each stage.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/optim/slices/optimizer_with_states.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

/// Steps by a running mean of the gradients; it is written with torch's operators alone.
class RunningMean : public optim::OptimizerWithStates {
 public:
  explicit RunningMean(std::vector<optim::ParamGroup> groups)
      : OptimizerWithStates(std::move(groups), {"mean"}) {
    optim::set_defaults(param_groups(), {{"beta", 0.9}});
  }
  std::string name() const override { return "RunningMean"; }
  bool is_elementwise() const override { return true; }
  void step(const optim::FlatSlice& slice, double gradient_scale) override {
    auto& state = states_.of(slice);
    const optim::Hyperparameters& group = optim::options_of(*this, slice);
    ++state.step;
    const at::Tensor gradient = slice.gradient.to(slice.master.dtype()) * gradient_scale;
    state.tensors[0].mul_(group.number("beta")).add_(gradient, 1.0 - group.number("beta"));
    slice.master.sub_(state.tensors[0], group.number("lr"));
    if (slice.low_precision.defined()) slice.low_precision.copy_(slice.master);
  }
};

std::unique_ptr<optim::Optimizer> make_running_mean(std::vector<optim::ParamGroup> groups) {
  return std::make_unique<RunningMean>(std::move(groups));
}

Json config_of(int stage, bool is_allowed = true) {
  return {{"train_micro_batch_size_per_gpu", 4},
          {"zero_allow_untested_optimizer", is_allowed},
          {"zero_optimization", {{"stage", stage}}}};
}

/// An engine whose second group, of the biases, has another rate; the first has no parameter to train.
auto make_own_engine(int stage, const comm::World& world) {
  const auto net = std::make_shared<OddNet>();
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& param : net->parameters()) (param.dim() >= 2 ? matrices : others).push_back(param);
  std::vector<ModelParameters> groups = {
      {{}, {{"lr", 1.0}}}, {matrices, {{"lr", 0.01}}}, {others, {{"lr", 0.002}}}};
  return initialize(net, {.config = config_of(stage),
                          .slice_optimizer = make_running_mean,
                          .model_parameters = std::move(groups),
                          .world = world})
      .engine;
}

template <class Engine>
std::vector<at::Tensor> weights_of(Engine& engine) {
  std::vector<at::Tensor> weights;
  for (const auto& param : engine.module().parameters()) {
    if (param.requires_grad()) weights.push_back(safe_get_full_fp32_param(engine, param).clone());
  }
  return weights;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t index = 0; index < found.size(); ++index)
    EXPECT_TRUE(found[index].allclose(expected[index], 1e-5, 1e-6)) << "parameter " << index;
}

TEST(SliceOptimizer, TrainsEquallyAtEachStageAndResumes) {
  const TemporaryFolder folder;
  run_ranks(2, [&folder](comm::World& world) {
    const auto train = [&world](auto& engine, int first, int last) {
      for (int step = first; step < last; ++step) train_step(engine, 4 * (2 * step + world.rank()));
    };
    const std::vector<at::Tensor> begin = weights_of(*make_own_engine(0, world));
    std::vector<at::Tensor> expected;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(message("stage ", stage));
      const std::string tag = message("stage", stage);
      const auto engine = make_own_engine(stage, world);
      train(*engine, 0, 2);
      engine->save_checkpoint(folder.string(), {.tag = tag});
      train(*engine, 2, 4);
      const std::vector<at::Tensor> found = weights_of(*engine);
      if (stage == 0) expected = found;
      expect_close(found, expected);
      EXPECT_FALSE(at::equal(found.front(), begin.front()));

      const auto resumed = make_own_engine(stage, world);
      resumed->load_checkpoint(folder.string(), {.tag = tag});
      train(*resumed, 2, 4);
      const std::vector<at::Tensor> again = weights_of(*resumed);
      for (size_t index = 0; index < found.size(); ++index)
        EXPECT_TRUE(at::equal(again[index], found[index]));
    }
  });
}

TEST(SliceOptimizer, GetsTheGroupsThatHaveParametersWithTheirOptions) {
  const auto engine = make_own_engine(2, comm::init_distributed());
  const auto& groups = engine->optimizer()->param_groups();
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].lr(), 0.01);
  EXPECT_EQ(groups[1].lr(), 0.002);
  EXPECT_EQ(groups[1].options.number("beta"), 0.9);
  EXPECT_EQ(engine->driver().state().parts.given_groups, (std::vector<size_t>{1, 2}));
}

TEST(SliceOptimizer, IsRefusedWithAnotherAndIfZeroDoesNotKnowIt) {
  const auto make = [](InitializeOptions options) {
    return [options] { initialize(std::make_shared<OddNet>(), options); };
  };
  EXPECT_ERROR(ConfigError, make({.config = config_of(1, false), .slice_optimizer = make_running_mean})(),
               "zero_allow_untested_optimizer: RunningMean was not tested with ZeRO stage 1");
  const auto none = [](std::vector<optim::ParamGroup>) { return std::unique_ptr<optim::Optimizer>(); };
  EXPECT_ERROR(UsageError, make({.config = config_of(0), .slice_optimizer = none})(),
               "slice_optimizer: the callable returned no optimizer");
}

}  // namespace
}  // namespace deepspeed::testing
