// Goes on from checkpoints that DeepSpeed wrote (tests/golden/deepspeed_checkpoints): the next losses are its
// own.
#include <fstream>
#include <memory>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

const std::string kFolder = std::string(DEEPSPEED_SOURCE_DIR) + "/tests/golden/deepspeed_checkpoints/";

Json read_json(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

// A head whose weight is another module's.
class TiedHead : public torch::nn::Module {
 public:
  explicit TiedHead(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight_); }

 private:
  at::Tensor weight_;
};

// The model of write_checkpoints.py: a frozen layer, a tied head, two buffers.
class SmallNet : public torch::nn::Module {
 public:
  SmallNet(int64_t vocabulary, int64_t width) {
    gain_ = register_parameter("gain", torch::zeros({1}));
    embed_ = register_module("embed", torch::nn::Embedding(vocabulary, width));
    frozen_ = register_module("frozen", torch::nn::Linear(width, width));
    hidden_ = register_module("hidden", torch::nn::Linear(width, width));
    head_ = register_module("head", std::make_shared<TiedHead>(embed_->weight));
    scale_ = register_buffer("scale", torch::zeros({width}));
    calls_ = register_buffer("calls", torch::zeros({}, torch::kLong));
    for (auto& param : frozen_->parameters()) param.requires_grad_(false);
  }

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    calls_.add_(1);
    at::Tensor x = embed_->forward(tokens);
    x = x + frozen_->forward(x) * scale_.to(x.scalar_type());
    x = x + torch::tanh(hidden_->forward(x)) * (1 + gain_);
    return torch::nn::functional::cross_entropy(head_->forward(x).to(at::kFloat).flatten(0, 1),
                                                targets.flatten());
  }

 private:
  at::Tensor gain_, scale_, calls_;
  torch::nn::Embedding embed_{nullptr};
  torch::nn::Linear frozen_{nullptr}, hidden_{nullptr};
  std::shared_ptr<TiedHead> head_;
};

class DeepSpeedCheckpoint : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, DeepSpeedCheckpoint,
                         ::testing::Values("stage1_fp32", "stage2_fp32", "stage1_bf16", "stage2_bf16"));

TEST_P(DeepSpeedCheckpoint, IsResumedWithTheSameLosses) {
  const std::string folder = kFolder + GetParam();
  const Json expected = read_json(folder + "/expected.json");
  const bool bf16 = expected.at("ds_config").contains("bf16");
  run_ranks(expected.at("world_size").get<int>(), [&](comm::World& world) {
    auto model = std::make_shared<SmallNet>(expected.at("vocabulary").get<int64_t>(),
                                            expected.at("width").get<int64_t>());
    auto [engine, optimizer, loader, scheduler] =
        initialize(model, {.config = expected.at("ds_config"), .world = world});
    const LoadResult loaded = engine->load_checkpoint(folder);
    ASSERT_FALSE(loaded.path.empty());
    EXPECT_EQ(loaded.client_state.at("epoch").as_int(), 2);
    EXPECT_EQ(engine->global_steps(), 3);
    const FormulaData data{world.size(), expected.at("micro_batch").get<int64_t>(),
                           expected.at("context").get<int64_t>(), expected.at("vocabulary").get<int64_t>()};
    const Json& losses = expected.at("losses_after_save");
    for (size_t step = 0; step < losses.size(); ++step) {
      const FormulaBatch batch = data.batch(static_cast<int64_t>(3 + step), world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      engine->backward(loss);
      engine->step();
      const double wanted = losses[step][static_cast<size_t>(world.rank())].get<double>();
      EXPECT_NEAR(loss.item<double>(), wanted, (bf16 ? 2e-3 : 1e-5) * wanted) << "step " << step;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
