// A small Transformer of the fused modules learns, at every stage of ZeRO as without it.
#include "deepspeed/ops/modules.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::ops {
namespace {

constexpr int64_t kTokens = 40, kWidth = 16, kHeads = 2, kPositions = 6;

struct Block : torch::nn::Module {
  Block()
      : norm1(register_module("norm1", RMSNorm(kWidth))),
        norm2(register_module("norm2", LayerNorm(kWidth))),
        rotary(register_module("rotary", RotaryEmbedding(kPositions, kWidth / kHeads))),
        qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)))),
        out_bias(register_parameter("out_bias", at::zeros({kWidth}))),
        up(register_module("up",
                           torch::nn::Linear(torch::nn::LinearOptions(kWidth, 4 * kWidth).bias(false)))),
        up_bias(register_parameter("up_bias", at::zeros({4 * kWidth}))),
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))),
        queries(register_parameter("queries", at::randn({1, kHeads, kPositions, kWidth / kHeads}))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto heads =
        qkv(norm1(x)).view({x.size(0), x.size(1), 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const at::Tensor q = rotary(heads[0]) + rotary(queries), k = rotary(heads[1]);
    const at::Tensor mask = at::full({x.size(1), x.size(1)}, -INFINITY, x.options()).triu_(1);
    const at::Tensor attention = masked_softmax(q.matmul(k.transpose(-1, -2)), mask, 0.35).matmul(heads[2]);
    const at::Tensor projected = out(attention.transpose(1, 2).reshape(x.sizes()));
    const auto [normed, sum] =
        norm2->add_and_norm(bias_dropout_residual(projected, out_bias, x, 0.1, false), x);
    return sum + down(bias_gelu(up(normed), up_bias));
  }

  RMSNorm norm1;
  LayerNorm norm2;
  RotaryEmbedding rotary;
  torch::nn::Linear qkv, out;
  at::Tensor out_bias;
  torch::nn::Linear up;
  at::Tensor up_bias;
  torch::nn::Linear down;
  at::Tensor queries;
};

struct FusedModel : torch::nn::Module {
  FusedModel()
      : tokens(register_module("tokens", Embedding(kTokens, kWidth))),
        block(register_module("block", std::make_shared<Block>())),
        loss(register_module("loss", LinearCrossEntropy(kWidth, kTokens, true))) {}
  at::Tensor forward(const at::Tensor& input, const at::Tensor& targets) {
    return loss(block->forward(tokens(input)), targets);
  }
  Embedding tokens;
  std::shared_ptr<Block> block;
  LinearCrossEntropy loss;
};

std::vector<float> losses_at_stage(const comm::World& world, int stage) {
  at::manual_seed(11);
  const Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}},
                       {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}};
  auto [engine, optimizer, loader, scheduler] =
      initialize(std::make_shared<FusedModel>(), {.config = config, .world = world});
  std::vector<float> losses;
  at::manual_seed(20 + world.rank());
  const at::Tensor input = at::randint(kTokens, {2, kPositions}, at::kLong);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor loss = engine->forward(input, input);
    losses.push_back(loss.item<float>());
    engine->backward(loss);
    engine->step();
  }
  return losses;
}

TEST(OpModules, TrainBitEqualAtEveryStage) {
  testing::run_ranks(2, [](comm::World& world) {
    const std::vector<float> expected = losses_at_stage(world, 0);
    EXPECT_LT(expected.back(), expected.front());
    for (const int stage : {1, 2, 3}) EXPECT_EQ(losses_at_stage(world, stage), expected) << "stage " << stage;
  });
}

TEST(OpModules, NameTheirOperatorInErrorsOfStage3) {
  testing::run_ranks(2, [](comm::World& world) {
    const Json config = {{"train_micro_batch_size_per_gpu", 2},
                         {"optimizer", {{"type", "Adam"}}},
                         {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}};
    const auto model = std::make_shared<FusedModel>();
    const auto engine = initialize(model, {.config = config, .world = world}).engine;
    EXPECT_ERROR(UsageError, model->block->norm1(at::ones({2, kWidth})), "block.norm1.weight",
                 "deepspeed::norm uses it outside of an access window");
    EXPECT_ERROR(UsageError, model->block->rotary(model->block->queries), "block.queries",
                 "deepspeed::rotary_embedding uses it");
  });
}

TEST(OpModules, HaveTheParametersOfTorchsModules) {
  const FusedModel model;
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.key());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"tokens.weight", "block.norm1.weight", "block.norm2.weight",
                                              "block.norm2.bias", "loss.weight", "loss.bias"}));
  RotaryEmbedding rotary(4, 8);
  EXPECT_ERROR(UsageError, rotary(at::zeros({1, 1, 5, 8})), "positions 0 to 5",
               "make the module with more positions");
  EXPECT_ERROR(UsageError, rotary(at::Tensor()), "rotary_embedding: input is undefined");
  Embedding padded(5, 3, 2);
  EXPECT_EQ(padded->weight[2].abs().sum().item<float>(), 0.0F);
}

// Far positions have angles whose fraction fp32 loses.
TEST(OpModules, RotateInTheInputsPrecision) {
  constexpr int64_t kFirst = 3990;
  RotaryEmbedding rotary(4000, 8);
  const at::Tensor input = at::randn({2, 3, 5, 8}, at::kDouble);
  const at::Tensor angles = at::arange(kFirst, kFirst + 5, at::kDouble).unsqueeze(1) *
                            at::pow(10000.0, at::arange(0, 8, 2, at::kDouble) / -8);
  const at::Tensor a = input.narrow(3, 0, 4), b = input.narrow(3, 4, 4);
  const at::Tensor expected =
      at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, 3);
  EXPECT_LT((rotary(input, kFirst) - expected).abs().max().item<double>(), 1e-14);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf}) {  // one after the other
    const at::Tensor turned = rotary(input.to(dtype), kFirst);
    EXPECT_EQ(turned.scalar_type(), dtype);
    EXPECT_TRUE(at::allclose(turned.to(at::kDouble), expected, 0.01, 0.02)) << dtype;
  }
}

// A gradient of the softmax's tail is below what fp16 holds until the loss scale comes.
TEST(OpModules, TrainEquallyInHalfWithAndWithoutGradientsInForward) {
  testing::run_ranks(1, [](comm::World& world) {
    constexpr int64_t kRows = 1024, kClasses = 4000, kFeatures = 8;
    const auto gradients = [&](bool in_forward) {
      at::manual_seed(3);
      const Json config = {{"train_micro_batch_size_per_gpu", 1},
                           {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 1.0}}}}},
                           {"zero_allow_untested_optimizer", true},
                           {"fp16", {{"enabled", true}, {"initial_scale_power", 16}}}};
      LinearCrossEntropy model(kFeatures, kClasses, true,
                               LinearCrossEntropyOptions{.gradients_in_forward = in_forward});
      const auto engine = initialize(model, {.config = config, .world = world}).engine;
      const at::Tensor hidden = at::randn({kRows, kFeatures}).to(at::kHalf).set_requires_grad(true);
      engine->backward(engine->forward(hidden, at::randint(kClasses, {kRows}, at::kLong)));
      const at::Tensor of_weight = safe_get_full_grad(*engine, model->weight).to(at::kDouble);
      EXPECT_TRUE(hidden.grad().isfinite().all().item<bool>());
      engine->step();
      EXPECT_EQ(engine->skipped_steps(), 0);
      return std::vector<at::Tensor>{of_weight, hidden.grad().to(at::kDouble)};
    };
    const auto expected = gradients(false), got = gradients(true);
    for (size_t i = 0; i < got.size(); ++i) {
      const double error =
          ((got[i] - expected[i]).square().mean() / expected[i].square().mean()).sqrt().item<double>();
      EXPECT_LT(error, 2e-3) << i;
    }
    EXPECT_EQ((got[0] == 0).sum().item<int64_t>(), 0);
  });
}

}  // namespace
}  // namespace deepspeed::ops
