// A small Transformer of the fused modules learns, at every stage of ZeRO as without it.
#include "deepspeed/ops/modules.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto heads =
        qkv(norm1(x)).view({x.size(0), x.size(1), 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const at::Tensor q = rotary(heads[0]), k = rotary(heads[1]);
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

TEST(OpModules, HaveTheParametersOfTorchsModules) {
  const FusedModel model;
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.key());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"tokens.weight", "block.norm1.weight", "block.norm2.weight",
                                              "block.norm2.bias", "loss.weight", "loss.bias"}));
  RotaryEmbedding rotary(4, 8);
  EXPECT_ERROR(UsageError, rotary(at::zeros({1, 1, 5, 8})), "positions 0 to 5",
               "make the module with more positions");
  Embedding padded(5, 3, 2);
  EXPECT_EQ(padded->weight[2].abs().sum().item<float>(), 0.0F);
}

}  // namespace
}  // namespace deepspeed::ops
