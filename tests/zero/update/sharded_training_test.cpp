// Compares training at stage 3 with other stages: losses, and weights after the last step.
#include <functional>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/step_result.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_options.h"

#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using ::testing::HasSubstr;

struct Recipe {
  int stage = 0;
  ZeroOptions zero;
  at::ScalarType dtype = at::kFloat;
  std::string optimizer = "AdamW";
  int accumulation = 1;
  int steps = 4;
  int64_t sub_group_numel = 1'000'000;
  GatherPoolOptions pool = testing::nothing_persistent().pool;
  ParamHome home = ParamHome::kDevice;

  Recipe() {
    zero.update.gradient_clipping = 0.0;
    zero.gradients.keys.reduce_bucket_size = 150;
  }
  Recipe at_stage(int stage) const {
    Recipe recipe = *this;
    recipe.stage = stage;
    return recipe;
  }
};

std::vector<NamedTensor> trainable(const torch::nn::Module& model) {
  std::vector<NamedTensor> params = testing::named_parameters(model);
  std::erase_if(params, [](const NamedTensor& param) { return !param.tensor.requires_grad(); });
  return params;
}

std::unique_ptr<ZeroOptimizer> optimizer_for(const torch::nn::Module& model, const Recipe& recipe,
                                             const comm::ProcessGroup& group) {
  // Two groups, so that their order matters.
  std::vector<std::vector<NamedTensor>> groups(2);
  std::vector<optim::ParamGroup> options(2);
  std::vector<NamedTensor> frozen = testing::named_parameters(model);
  std::erase_if(frozen, [](const NamedTensor& param) { return param.tensor.requires_grad(); });
  for (const NamedTensor& param : trainable(model)) {
    const size_t place = param.tensor.dim() > 1 ? 0 : 1;
    options[place].param_names.push_back(param.name);
    groups[place].push_back(param);
  }
  auto base = optim::make_optimizer(recipe.optimizer, {{"lr", 0.02}, {"weight_decay", 0.1}}, options);
  std::unique_ptr<ParamStore> store;
  if (recipe.stage == 3) {
    store = std::make_unique<ShardStore>(
        std::move(groups), frozen, ZeroGroups(group),
        ShardStore::Options{recipe.dtype, recipe.sub_group_numel, recipe.pool, {.place = recipe.home}});
  } else {
    for (const NamedTensor& param : frozen) param.tensor.set_data(param.tensor.to(recipe.dtype));
    store =
        std::make_unique<ParamStore>(std::move(groups), group.size(),
                                     ParamStore::Options{recipe.dtype, /*round_robin=*/false, recipe.stage});
  }
  store->broadcast(group, 0);
  ZeroOptions zero = recipe.zero;
  zero.gradients.communication_dtype = recipe.dtype;
  zero.gradients.averaging = Averaging::mean(group.size());
  return std::make_unique<ZeroOptimizer>(std::move(store), std::move(base),
                                         std::make_unique<precision::StaticLossScaler>(1.0),
                                         ZeroGroups(group), zero);
}

/// Returns losses, then weights.
std::vector<at::Tensor> train(torch::nn::Module& model, const Recipe& recipe, const comm::ProcessGroup& group,
                              const std::function<at::Tensor(int64_t micro_step)>& loss_of) {
  const auto optimizer = optimizer_for(model, recipe, group);
  std::vector<at::Tensor> results;
  int64_t micro_step = 0;
  for (int step = 0; step < recipe.steps; ++step) {
    for (int part = 0; part < recipe.accumulation; ++part, ++micro_step) {
      optimizer->set_micro_step(micro_step);
      optimizer->gradients().set_boundary(part + 1 == recipe.accumulation);
      const ParameterAccess access(model.parameters());
      const at::Tensor loss = loss_of(micro_step);
      loss.backward();
      optimizer->gradients().finish_backward();
      results.push_back(loss.detach());
    }
    EXPECT_TRUE(optimizer->step(step).applied);
    optimizer->zero_grad();
  }
  const GatheredParameters gathered(model.parameters());
  for (const auto& param : model.parameters()) results.push_back(param.detach().clone());
  return results;
}

std::vector<at::Tensor> train_odd_net(const Recipe& recipe, const comm::World& world) {
  testing::OddNet model(0.0, 1 + world.rank());  // rank 0's weights are used
  const auto dtype = recipe.dtype;
  return train(model, recipe, world.group(), [&](int64_t micro_step) {
    const auto [inputs, targets] = testing::odd_batch(100 * micro_step + 4 * world.rank(), 4);
    return model.forward(inputs.to(dtype), targets.to(dtype));
  });
}

std::vector<at::Tensor> train_gpt(const Recipe& recipe, const comm::World& world) {
  testing::TinyGPT model{testing::TinyGPTConfig{}};
  testing::fill_parameters(model, 0.1);
  return train(model, recipe, world.group(), [&](int64_t micro_step) {
    const at::Tensor tokens =
        at::arange(22, at::kLong).mul_(7 + micro_step).add_(world.rank()).remainder_(48).view({2, 11});
    return model.forward(tokens, tokens.roll(1, 1));
  });
}

double largest_difference(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& expected) {
  EXPECT_EQ(results.size(), expected.size());
  double largest = 0.0;
  for (size_t i = 0; i < results.size(); ++i)
    largest = std::max(largest, at::sub(results[i], expected[i]).abs().max().item<double>());
  return largest;
}

TEST(ShardedTraining, EqualsStageZeroBitForBitOnOneToFourRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const bool overlap : {false, true}) {
        Recipe recipe;
        recipe.zero.gradients.overlap = overlap;
        EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world),
                                     train_odd_net(recipe.at_stage(0), world)),
                  0.0);
        EXPECT_EQ(
            largest_difference(train_gpt(recipe.at_stage(3), world), train_gpt(recipe.at_stage(0), world)),
            0.0);
      }
    });
  }
}

TEST(ShardedTraining, IsTheSameWhateverStaysWholeAndHoweverGradientsTravel) {
  testing::run_ranks(3, [](comm::World& world) {
    Recipe recipe;
    const auto expected = train_odd_net(recipe.at_stage(0), world);
    for (const int64_t threshold : {0, 13, 100000}) {
      for (const int64_t limit : {0, 200, 1000000}) {
        recipe.pool.keys.stage3_param_persistence_threshold = threshold;
        recipe.pool.keys.stage3_max_live_parameters = limit;
        EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world), expected), 0.0);
      }
    }
    for (const int64_t bucket : {1, 1000000}) {
      recipe.zero.gradients.keys.reduce_bucket_size = bucket;
      EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world), expected), 0.0);
    }
    recipe.zero.gradients.keys.contiguous_gradients = false;
    EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world), expected), 0.0);
    recipe.zero.gradients.keys.reduce_scatter = false;
    EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world), expected), 0.0);
  });
}

// Tests copies between device and host within one memory. None may come too early or too late.
TEST(ShardedTraining, WithTheStepInAnotherMemoryIsTheSame) {
  for (const int ranks : {1, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const char* masters : {"fp32 model", "fp32", "bf16", "split"}) {
        for (const int stage : {1, 2, 3}) {
          Recipe recipe = Recipe().at_stage(stage);
          if (masters != std::string("fp32 model")) recipe.dtype = at::kBFloat16;
          recipe.accumulation = 2;
          recipe.zero.update.gradient_clipping = stage == 2 ? 0.1 : 0.0;
          recipe.zero.update.sixteen_bit_masters = masters == std::string("bf16");
          recipe.zero.update.split_masters = masters == std::string("split");
          const auto expected = train_odd_net(recipe, world);
          recipe.sub_group_numel = 20;
          recipe.zero.update.offload.device = OffloadDevice::kCpu;
          recipe.zero.update.offload.piece_numel = 20;
          recipe.zero.update.offload.always_copies = true;
          for (const auto home : stage == 3 ? std::vector{ParamHome::kDevice, ParamHome::kHost}
                                            : std::vector{ParamHome::kDevice}) {
            recipe.home = home;
            for (const double ratio : stage == 3 ? std::vector{1.0, 0.5, 0.0} : std::vector{1.0}) {
              recipe.zero.update.offload.ratio = ratio;
              for (const bool ahead : stage == 3 ? std::vector{false, true} : std::vector{false}) {
                recipe.zero.update.offload.super_offload = ahead;
                recipe.zero.update.offload.worker_cores = {0};
                EXPECT_EQ(largest_difference(train_odd_net(recipe, world), expected), 0.0)
                    << "stage " << stage << " ratio " << ratio << " masters " << masters << " home "
                    << int(home) << " ahead " << ahead;
              }
            }
          }
        }
      }
    });
  }
}

TEST(ShardedTraining, WithAccumulationEqualsStageTwo) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Recipe recipe;
      recipe.accumulation = 3;
      EXPECT_EQ(largest_difference(train_odd_net(recipe.at_stage(3), world),
                                   train_odd_net(recipe.at_stage(2), world)),
                0.0);
    });
  }
}

TEST(ShardedTraining, InSixteenBitsEqualsStageZero) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const bool sixteen_bit_masters : {false, true}) {
      Recipe recipe;
      recipe.dtype = at::kBFloat16;
      recipe.zero.update.sixteen_bit_masters = sixteen_bit_masters;
      const auto results = train_odd_net(recipe.at_stage(3), world);
      EXPECT_EQ(results.back().scalar_type(), at::kBFloat16);
      EXPECT_EQ(largest_difference(results, train_odd_net(recipe.at_stage(0), world)), 0.0);
    }
  });
}

TEST(ShardedTraining, WithClippingIsAsCloseToStageZeroAsTheNormsSumIs) {
  testing::run_ranks(3, [](comm::World& world) {
    Recipe recipe;
    recipe.zero.update.gradient_clipping = 0.05;
    recipe.zero.update.check_overflow = true;
    EXPECT_LT(largest_difference(train_odd_net(recipe.at_stage(3), world),
                                 train_odd_net(recipe.at_stage(0), world)),
              1e-5);
  });
}

TEST(ShardedTraining, HoldsTheShardsAlone) {
  testing::run_ranks(2, [](comm::World& world) {
    testing::TinyGPT model{testing::TinyGPTConfig{}};
    int64_t numel = 0;
    for (const NamedTensor& param : trainable(model)) numel += (param.tensor.numel() + 1) / 2;
    const auto optimizer = optimizer_for(model, Recipe().at_stage(3), world.group());
    EXPECT_EQ(optimizer->memory().parameters, 4 * numel);
    EXPECT_EQ(optimizer->memory().gradients, 4 * numel);
    EXPECT_EQ(optimizer->memory().master_weights, 0);
  });
}

TEST(ShardedTraining, NamesTheParameterWhoseGradientIsNotFinite) {
  testing::run_ranks(2, [](comm::World& world) {
    testing::OddNet model;
    Recipe recipe;
    recipe.zero.update.check_overflow = true;
    const auto optimizer = optimizer_for(model, recipe.at_stage(3), world.group());
    if (world.rank() == 1) {
      model.named_parameters()["shared.bias"].register_hook(
          [](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity(); });
    }
    {
      const ParameterAccess access(model.parameters());
      const auto [inputs, targets] = testing::odd_batch(0, 4);
      model.forward(inputs, targets).backward();
      optimizer->gradients().finish_backward();
    }
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(optimizer->step(7).applied);
    const std::string warning = ::testing::internal::GetCapturedStderr();
    if (world.rank() != 0) return;
    EXPECT_THAT(warning,
                ::testing::AllOf(HasSubstr("step 7"), HasSubstr("'shared.bias'"), HasSubstr("rank 1")));
  });
}

}  // namespace
}  // namespace deepspeed::zero
