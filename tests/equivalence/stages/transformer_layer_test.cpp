// Models of DeepSpeedTransformerLayers train alike at all stages, under recomputation, born partitioned and
// cut into a pipeline.
#include <memory>
#include <vector>

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/ops.h"
#include "deepspeed/pipe.h"
#include "deepspeed/zero/init.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kWidth = 12;

DeepSpeedTransformerConfig layer_config(bool pre_layer_norm, double dropout_ratio = 0.1) {
  return {.hidden_size = kWidth,
          .heads = 3,
          .attn_dropout_ratio = dropout_ratio,
          .hidden_dropout_ratio = dropout_ratio,
          .num_hidden_layers = 3,
          .initializer_range = 0.2,
          .pre_layer_norm = pre_layer_norm,
          .normalize_invertible = pre_layer_norm,
          .gelu_checkpoint = true};
}

class Encoder : public torch::nn::Module {
 public:
  Encoder(bool pre_layer_norm, bool recomputes) : recomputes_(recomputes) {
    for (int i = 0; i < 3; ++i) {
      layers_.push_back(register_module(
          message("layer", i), std::make_shared<DeepSpeedTransformerLayer>(layer_config(pre_layer_norm))));
    }
    head_ = register_module("head", torch::nn::Linear(kWidth, 2));
  }
  at::Tensor forward(at::Tensor x, const at::Tensor& mask, const at::Tensor& target) {
    for (const auto& layer : layers_) {
      const auto run = [layer](const at::Tensor& states, const at::Tensor& added) {
        return layer->forward(states, added);
      };
      x = recomputes_ ? checkpointing::checkpoint(run, x, mask) : run(x, mask);
    }
    return at::mse_loss(head_->forward(x), target);
  }

 private:
  bool recomputes_;
  std::vector<std::shared_ptr<DeepSpeedTransformerLayer>> layers_;
  torch::nn::Linear head_{nullptr};
};

struct EncoderRun {
  int stage = 0;
  bool pre_layer_norm = true;
  bool recomputes = false;
  bool is_born_partitioned = false;
  int accumulation = 1;
  Json patch = Json::object();
};

struct EncoderResult {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
};

EncoderResult train(const comm::World& world, const EncoderRun& run) {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_accumulation_steps", run.accumulation},
                 {"log_level", "error"},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.02}}}}},
                 {"zero_optimization", {{"stage", run.stage}, {"reduce_bucket_size", 500}}}};
  if (run.stage == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
  config.merge_patch(run.patch);
  torch::manual_seed(4);
  std::shared_ptr<Encoder> model;
  {
    const zero::Init init({.config_dict_or_path = run.stage == 3 ? std::optional(config) : std::nullopt,
                           .enabled = run.is_born_partitioned,
                           .world = world,
                           .max_whole_bytes = 2000});
    model = std::make_shared<Encoder>(run.pre_layer_norm, run.recomputes);
  }
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  const auto type = run.patch.contains("bf16") ? at::kBFloat16 : at::kFloat;
  EncoderResult result;
  for (int step = 0; step < 6; ++step) {
    torch::manual_seed(100 * step + world.rank());
    const at::Tensor x = at::randn({2, 5, kWidth}).to(type), target = at::randn({2, 5, 2}).to(type);
    at::Tensor mask = at::zeros({2, 1, 1, 5}).to(type);
    mask[1][0][0][4] = -10000;
    const at::Tensor loss = engine->forward(x, mask, target);
    engine->backward(loss);
    engine->step();
    result.losses.push_back(loss.template item<double>());
  }
  for (const at::Tensor& param : model->parameters())
    result.weights.push_back(safe_get_full_fp32_param(*engine, param));
  return result;
}

void expect_same(const EncoderResult& seen, const EncoderResult& expected, const std::string& what) {
  EXPECT_EQ(seen.losses, expected.losses) << what;
  ASSERT_EQ(seen.weights.size(), expected.weights.size());
  for (size_t i = 0; i < expected.weights.size(); ++i)
    EXPECT_TRUE(seen.weights[i].equal(expected.weights[i])) << what << ", parameter " << i;
}

TEST(TransformerLayers, TrainAtEveryStageAsAtStage0) {
  run_ranks(2, [](comm::World& world) {
    for (const bool pre : {true, false}) {
      const EncoderResult expected = train(world, {.stage = 0, .pre_layer_norm = pre});
      for (const int stage : {1, 2, 3})
        expect_same(train(world, {.stage = stage, .pre_layer_norm = pre}), expected,
                    message("stage ", stage));
      for (const int stage : {0, 3}) {
        expect_same(train(world, {.stage = stage, .pre_layer_norm = pre, .recomputes = true}), expected,
                    message("recomputed at stage ", stage));
      }
      expect_same(train(world, {.stage = 3, .pre_layer_norm = pre, .is_born_partitioned = true}), expected,
                  "born partitioned");
      // With accumulation stages 2 and 3 sum over ranks before they sum over micro steps.
      for (const int stage : {0, 2}) {
        const EncoderResult sums = train(world, {.stage = stage, .pre_layer_norm = pre, .accumulation = 2});
        expect_same(train(world, {.stage = stage + 1, .pre_layer_norm = pre, .accumulation = 2}), sums,
                    message("accumulated at stage ", stage + 1));
      }
    }
  });
}

TEST(TransformerLayers, TrainInBf16AtEveryStageAsAtStage1) {
  run_ranks(2, [](comm::World& world) {
    const Json bf16 = {{"bf16", {{"enabled", true}}}};
    const EncoderResult expected = train(world, {.stage = 1, .patch = bf16});
    for (const int stage : {2, 3})
      expect_same(train(world, {.stage = stage, .patch = bf16}), expected, message("stage ", stage));
    expect_same(train(world, {.stage = 3, .recomputes = true, .patch = bf16}), expected, "recomputed");
  });
}

TEST(TransformerLayers, TrainUnderAutocastAtStage3AsAtStage2) {
  run_ranks(2, [](comm::World& world) {
    const Json autocast = {{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}};
    const EncoderResult expected = train(world, {.stage = 2, .patch = autocast});
    expect_same(train(world, {.stage = 3, .patch = autocast}), expected, "stage 3");
    EXPECT_NE(train(world, {.stage = 2}).losses, expected.losses) << "autocast changed nothing";
  });
}

/// A stage passes states alone, so the layer gets no mask. Without dropout, of which each stage draws its
/// own.
struct MasklessLayer : torch::nn::Module {
  explicit MasklessLayer(bool pre_layer_norm)
      : layer(register_module(
            "layer", std::make_shared<DeepSpeedTransformerLayer>(layer_config(pre_layer_norm, 0)))) {}
  at::Tensor forward(const at::Tensor& states) { return layer->forward(states); }
  std::shared_ptr<DeepSpeedTransformerLayer> layer;
};

std::vector<double> train_pipeline(const comm::World& world, int num_stages, const std::string& schedule) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 4; ++i) layers.push_back(LayerSpec::of<MasklessLayer>(i % 2 == 0));
  const auto model = std::make_shared<PipelineModule>(
      layers,
      PipelineModuleOptions{.num_stages = num_stages,
                            .loss_fn = [](const at::Tensor& output,
                                          const at::Tensor& target) { return at::mse_loss(output, target); },
                            .seed_layers = true});
  const Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {"gradient_accumulation_steps", 4},
                       {"log_level", "error"},
                       {"pipeline", {{"schedule", schedule}}},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.02}}}}}};
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  std::vector<double> losses;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto next = [&] {
    return std::pair(at::randn({2, 5, kWidth}, generator), at::randn({2, 5, kWidth}, generator));
  };
  for (int step = 0; step < 3; ++step) losses.push_back(engine->train_batch(next).template item<double>());
  return losses;
}

TEST(TransformerLayers, TrainInAPipelineAsOnOneRank) {
  const auto losses_of = [](int num_ranks, const char* schedule) {
    return run_ranks_collect(num_ranks, [&](comm::World& world) {
      return message(Json(train_pipeline(world, num_ranks, schedule)));
    });
  };
  const std::string expected = losses_of(1, "1f1b").at(0);
  EXPECT_NE(expected.find(','), std::string::npos) << expected;
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    for (const std::string& losses : losses_of(2, schedule)) EXPECT_EQ(losses, expected) << schedule;
  }
}

}  // namespace
}  // namespace deepspeed::testing
