// Embeddings whose gradients travel as rows train as those that travel whole.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/initialize.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

struct WordNet : torch::nn::Module {
  explicit WordNet(bool sparse = false)
      : words(torch::nn::EmbeddingOptions(500, 6).sparse(sparse)), bags(300, 6), out(6, 1) {
    register_module("words", words);
    register_module("bags", bags);
    register_module("out", out);
    const torch::NoGradGuard no_grad;
    int64_t index = 0;
    for (const at::Tensor& parameter : parameters())
      parameter.copy_(
          at::sin(at::arange(parameter.numel(), at::kFloat) + double(++index)).view(parameter.sizes()));
  }
  at::Tensor forward(const at::Tensor& tokens) {  // (B, T)
    return out(words(tokens).mean(1) + bags(tokens.remainder(300))).pow(2).mean();
  }
  torch::nn::Embedding words;
  torch::nn::EmbeddingBag bags;
  torch::nn::Linear out;
};

std::vector<at::Tensor> train_words(comm::World& world, Json config, bool sparse_layer) {
  auto model = std::make_shared<WordNet>(sparse_layer);
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  for (int64_t step = 0; step < 6; ++step) {
    const at::Tensor tokens = (at::arange(8).view({2, 4}) * 13 + 31 * step + 7 * world.rank()).remainder(500);
    engine->backward(engine->forward(tokens));
    engine->step();
  }
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model->parameters()) weights.push_back(parameter.detach().clone());
  return weights;
}

TEST(SparseGradients, TrainAsWholeOnes) {
  for (const int stage : {0, 1}) {
    for (const char* precision : {"fp32", "bf16"}) {
      run_ranks(2, [&](comm::World& world) {
        Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {"gradient_accumulation_steps", 2},
                       {"gradient_clipping", 0.0},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                       {"zero_optimization", {{"stage", stage}}}};
        if (precision == std::string("bf16")) config["bf16"] = {{"enabled", true}};
        const auto whole = train_words(world, config, false);
        config["sparse_gradients"] = true;
        for (const bool sparse_layer : {false, true}) {
          const auto rows = train_words(world, config, sparse_layer);
          for (size_t i = 0; i < whole.size(); ++i) {
            EXPECT_TRUE(at::equal(rows[i], whole[i]))
                << "stage " << stage << " " << precision << " weight " << i;
          }
        }
      });
    }
  }
}

TEST(SparseGradients, TrainASparseLayerAtEveryStage) {
  for (const int stage : {0, 1, 2}) {
    run_ranks(2, [&](comm::World& world) {
      const Json config = {{"train_micro_batch_size_per_gpu", 2},
                           {"gradient_accumulation_steps", 2},
                           {"gradient_clipping", 0.0},
                           {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                           {"zero_optimization", {{"stage", stage}}}};
      const auto whole = train_words(world, config, false), sparse = train_words(world, config, true);
      for (size_t i = 0; i < whole.size(); ++i)
        EXPECT_TRUE(at::equal(sparse[i], whole[i])) << stage << " " << i;
    });
  }
}

TEST(SparseGradients, SayThatStage2SendsThemWhole) {
  log::set_level(log::Level::kWarning);
  ::testing::internal::CaptureStderr();
  initialize(std::make_shared<WordNet>(), {.config = Json{{"train_batch_size", 2},
                                                          {"sparse_gradients", true},
                                                          {"optimizer", {{"type", "AdamW"}}},
                                                          {"zero_optimization", {{"stage", 2}}}}});
  const std::string lines = ::testing::internal::GetCapturedStderr();
  log::set_level(log::Level::kInfo);
  EXPECT_THAT(lines, ::testing::HasSubstr("without effect: sparse_gradients (stage 2"));
}

}  // namespace
}  // namespace deepspeed::testing
