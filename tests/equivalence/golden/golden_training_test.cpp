// The C++ model and formulas against the recorded ones, without the engine: what stands on them is only as
// good.
#include "tests/equivalence/golden/golden_training.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"

namespace deepspeed::testing {

namespace {

at::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& item : module.named_parameters()) {
    parts.push_back(item.value().grad().reshape({-1}));
  }
  return at::cat(parts);
}

std::unique_ptr<torch::optim::Optimizer> make_torch_optimizer(const GoldenTraining& golden,
                                                              torch::nn::Module& model) {
  const Json& optimizer = golden.ds_config.at("optimizer");
  const Json& params = optimizer.at("params");
  const double lr = params.at("lr");
  if (optimizer.at("type") == "SGD") {
    return std::make_unique<torch::optim::SGD>(
        model.parameters(), torch::optim::SGDOptions(lr).momentum(params.at("momentum").get<double>()));
  }
  const auto betas = params.at("betas").get<std::vector<double>>();
  return std::make_unique<torch::optim::AdamW>(model.parameters(),
                                               torch::optim::AdamWOptions(lr)
                                                   .betas({betas.at(0), betas.at(1)})
                                                   .eps(params.at("eps").get<double>())
                                                   .weight_decay(params.at("weight_decay").get<double>()));
}

void set_rate(torch::optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(lr);
  }
}

/// All ranks' micro batches in one process: the plain loop that data-parallel training stands for.
std::vector<std::vector<double>> train_plainly(const GoldenTraining& golden, TinyGPT& model) {
  const auto optimizer = make_torch_optimizer(golden, model);
  const FormulaData data = golden.data();
  const double clipping = golden.ds_config.at("gradient_clipping");
  const auto parts = static_cast<double>(golden.world_size * golden.accumulation());
  std::vector<std::vector<double>> losses;
  for (int64_t step = 0; step < golden.num_steps; ++step) {
    std::vector<double> of_ranks;
    for (int64_t rank = 0; rank < golden.world_size; ++rank) {
      double sum = 0.0;
      for (int64_t k = 0; k < golden.accumulation(); ++k) {
        const FormulaBatch batch = data.batch(step * golden.accumulation() + k, rank);
        const at::Tensor loss = model.forward(batch.tokens, batch.targets);
        (loss / parts).backward();
        sum += loss.item<double>();
      }
      of_ranks.push_back(sum / static_cast<double>(golden.accumulation()));
    }
    losses.push_back(of_ranks);
    if (clipping > 0.0) {
      torch::nn::utils::clip_grad_norm_(model.parameters(), clipping);
    }
    set_rate(*optimizer, golden.learning_rates.at(step));
    optimizer->step();
    optimizer->zero_grad();
  }
  return losses;
}

}  // namespace

TEST(FormulaTraining, HashesLikeThePublishedSplitMix64) {
  // The first outputs of the generator seeded with 1234567.
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317ULL);
  EXPECT_EQ(splitmix64(1234567 + 0x9E3779B97F4A7C15ULL), 3203168211198807973ULL);
}

TEST(FormulaTraining, TargetsAreTheNextTokensAndMostFollowTheRule) {
  const FormulaData data{2, 4, 11, 48};
  const FormulaBatch batch = data.batch(3, 1);
  ASSERT_EQ(batch.tokens.sizes(), at::IntArrayRef({4, 11}));
  EXPECT_TRUE(batch.tokens.slice(1, 1).equal(batch.targets.slice(1, 0, 10)));
  const at::Tensor follows = batch.targets.eq((batch.tokens * 5 + 7).remainder(48));
  EXPECT_GT(follows.sum().item<int64_t>(), 30);
  EXPECT_FALSE(batch.tokens.equal(data.batch(3, 0).tokens));
}

TEST(GoldenTraining, TheFirstLossAndGradientEqualTheRecordedOnes) {
  const GoldenTraining golden = load_golden_training("sgd");
  auto model = golden.make_model();
  const FormulaBatch batch = golden.data().batch(0, 0);
  const at::Tensor loss = model->forward(batch.tokens, batch.targets);
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), golden.first_micro_batch_loss, 1e-6 * golden.first_micro_batch_loss);
  const at::Tensor expected = load_golden_first_gradient();
  const at::Tensor difference = (flat_gradients(*model) - expected).abs();
  ASSERT_EQ(difference.numel(), golden.parameters.numel());
  EXPECT_LT(difference.max().item<double>(), 1e-6 * expected.abs().max().item<double>());
}

class GoldenTrainingOf : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTrainingOf, IsWhatAPlainLoopOverAllMicroBatchesGives) {
  const GoldenTraining golden = load_golden_training(GetParam());
  auto model = golden.make_model();
  const auto losses = train_plainly(golden, *model);
  const Difference loss = largest_loss_difference(losses, golden.losses);
  EXPECT_LT(loss.value, 1e-4) << loss.where;
  const Difference update =
      largest_update_difference(*golden.make_model(), flat_parameters(*model), golden.parameters);
  EXPECT_LT(update.value, 1e-3) << update.where;
  RecordProperty("loss_difference", message(loss.value));
  RecordProperty("update_difference", message(update.value));
  EXPECT_LT(golden.losses.back().at(0), 0.9 * golden.losses.front().at(0))
      << "the recorded training learned nothing";
}

INSTANTIATE_TEST_SUITE_P(Variants, GoldenTrainingOf, ::testing::Values("adamw_clip", "sgd_clip", "sgd"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace deepspeed::testing
