// Optimizers passed as objects that need whole parameters, at each stage.
#include <functional>

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(const OddNet&)>;
using torch::optim::OptimizerParamGroup;

std::shared_ptr<torch::optim::Optimizer> make_lamb(const OddNet& net) {
  return std::make_shared<FusedLamb>(net.parameters(), FusedLambOptions().lr(0.01).weight_decay(0.1));
}

std::shared_ptr<torch::optim::Optimizer> make_muon(const OddNet& net) {
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& param : net.parameters()) (param.dim() >= 2 ? matrices : others).push_back(param);
  return std::make_shared<Muon>(
      std::vector{OptimizerParamGroup(matrices, std::make_unique<MuonOptions>(MuonOptions(true).lr(0.01))),
                  OptimizerParamGroup(others, std::make_unique<MuonOptions>(MuonOptions(false)))});
}

at::Tensor weights_after(const MakeOptimizer& make, int stage, const comm::World& world) {
  const auto net = std::make_shared<OddNet>();
  const Json config = {{"train_micro_batch_size_per_gpu", 4},
                       {"gradient_clipping", 0.0},
                       {"zero_allow_untested_optimizer", true},
                       {"zero_optimization", {{"stage", stage}}}};
  const auto engine = initialize(net, {.config = config, .optimizer = make(*net), .world = world}).engine;
  for (int step = 0; step < 4; ++step) train_step(*engine, 4 * (3 * step + world.rank()));
  return safe_get_full_fp32_param(*engine, net->named_parameters()["shared.weight"]);
}

TEST(OptimizerObjects, TrainEquallyAtEachStageIfTheyNeedWholeParameters) {
  run_ranks(3, [](comm::World& world) {
    for (const MakeOptimizer& make : {MakeOptimizer(make_lamb), MakeOptimizer(make_muon)}) {
      const at::Tensor expected = weights_after(make, 0, world);
      EXPECT_FALSE(expected.allclose(OddNet().named_parameters()["shared.weight"], 1e-3, 1e-3));
      for (const int stage : {1, 2, 3}) {
        EXPECT_TRUE(weights_after(make, stage, world).allclose(expected, 1e-5, 1e-6)) << "stage " << stage;
      }
    }
  });
}

struct OwnAdam : torch::optim::Adam {
  using Adam::Adam;
};

TEST(OptimizerObjects, AreRefusedIfUnknownAndRanksCutParameters) {
  run_ranks(1, [](comm::World& world) {
    const MakeOptimizer make = [](const OddNet& net) {
      return std::make_shared<OwnAdam>(net.parameters(), torch::optim::AdamOptions(0.01));
    };
    for (const char* stage : {"1", "2", "3"}) {
      EXPECT_ERROR(UsageError, weights_after(make, stage[0] - '0', world),
                   "optimizer OwnAdam needs whole parameters",
                   std::string("which ZeRO stage ") + stage + " cuts; use stage 0");
    }
  });
}

// SGD at 0.1, beside groups at other rates that are empty or frozen.
at::Tensor weights_of_sgd(bool has_idle_groups) {
  const auto net = std::make_shared<OddNet>();
  std::vector<at::Tensor> frozen, trained;
  for (const at::Tensor& param : net->parameters())
    (param.requires_grad() ? trained : frozen).push_back(param);
  const auto group = [](const std::vector<at::Tensor>& params, double lr) {
    return OptimizerParamGroup(params, std::make_unique<torch::optim::SGDOptions>(lr));
  };
  std::vector<OptimizerParamGroup> groups;
  if (has_idle_groups) {
    groups.push_back(group({}, 0.5));
    groups.push_back(group(frozen, 0.25));
  }
  groups.push_back(group(trained, 0.1));
  const auto sgd = std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.7));
  const Json config = {{"train_micro_batch_size_per_gpu", 4}, {"gradient_clipping", 0.0}};
  const auto engine = initialize(net, {.config = config, .optimizer = sgd}).engine;
  EXPECT_EQ(engine->get_lr(), std::vector<double>{0.1});
  for (int step = 0; step < 3; ++step) train_step(*engine, 4 * step);
  std::vector<at::Tensor> flat;
  for (const at::Tensor& param : trained) flat.push_back(param.detach().flatten());
  return torch::cat(flat);
}

TEST(OptimizerObjects, StepGroupsAtTheirOwnRatesNextToUntrainedOnes) {
  EXPECT_TRUE(weights_of_sgd(true).equal(weights_of_sgd(false)));
}

}  // namespace
}  // namespace deepspeed::testing
