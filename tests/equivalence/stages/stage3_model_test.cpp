// A model at stage 3 as the program sees it, through the engine: its losses, its parameters and their memory.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/equivalence/stages/stage3_config.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The configuration of a GPT whose head is its embedding.
constexpr TinyGPTConfig kGpt{.vocabulary = 48, .context = 11, .width = 14, .layers = 2, .heads = 2};

std::shared_ptr<DeepSpeedEngine<TinyGPT>> gpt_engine(int stage, const comm::World& world,
                                                     const Json& patch = Json::object()) {
  auto model = std::make_shared<TinyGPT>(kGpt);
  fill_parameters(*model, 0.1);
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}};
  config.merge_patch(at_stage(stage, patch));
  return initialize(model, {.config = config, .world = world}).engine;
}

template <class Engine>
double gpt_loss(Engine& engine, const FormulaBatch& batch, bool training) {
  const at::Tensor loss = engine.forward(batch.tokens, batch.targets);
  if (training) {
    engine.backward(loss);
    engine.step();
  }
  return loss.template item<double>();
}

void expect_same_weights(torch::nn::Module& sharded, torch::nn::Module& plain) {
  const zero::GatheredParameters gathered(sharded.parameters());
  for (const auto& item : sharded.named_parameters())
    EXPECT_TRUE(item.value().equal(plain.named_parameters()[item.key()])) << item.key();
}

class Stage3Gpt : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stage3Gpt, ::testing::Values(1, 2, 3, 4));

TEST_P(Stage3Gpt, TrainsWithEvaluationBetweenStepsBesideAnotherEngine) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const Json& patch : {Json::object(), Json{{"bf16", {{"enabled", true}}}}}) {
      const auto plain = gpt_engine(0, world, patch);
      const auto sharded = gpt_engine(3, world, patch);
      const auto other = gpt_engine(3, world, patch);  // trains at the same time, on other data
      const FormulaData data{world.size(), 2, kGpt.context, kGpt.vocabulary};
      for (int64_t step = 0; step < 4; ++step) {
        const FormulaBatch batch = data.batch(step, world.rank());
        EXPECT_EQ(gpt_loss(*sharded, batch, true), gpt_loss(*plain, batch, true)) << step;
        gpt_loss(*other, data.batch(step + 7, world.rank()), true);
        const c10::NoGradGuard no_grad;
        plain->eval();
        sharded->eval();
        const FormulaBatch held_out = data.batch(100 + step, world.rank());
        EXPECT_EQ(gpt_loss(*sharded, held_out, false), gpt_loss(*plain, held_out, false)) << step;
        plain->train();
        sharded->train();
      }
      expect_same_weights(sharded->module(), plain->module());
    }
  });
}

TEST(Stage3Model, KeepsIdentitySizesAndTying) {
  run_ranks(2, [](comm::World& world) {
    auto model = std::make_shared<OddNet>();
    const auto before = model->named_parameters();
    const auto engine = initialize(model, {.config = at_stage(3, {{"train_micro_batch_size_per_gpu", 4},
                                                                  {"optimizer", {{"type", "AdamW"}}}}),
                                           .world = world})
                            .engine;
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().is_same(before[item.key()])) << item.key();
      EXPECT_EQ(item.value().sizes(), before[item.key()].sizes());
    }
    EXPECT_EQ(model->named_parameters()["shared.weight"].numel(), 169);
    EXPECT_FALSE(model->named_parameters()["frozen"].requires_grad());
  });
}

TEST(Stage3Model, NamesAParameterUsedOutsideTheEngine) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world);
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    EXPECT_THAT(error_of<UsageError>([&] { engine->module().forward(batch.tokens, batch.targets); }),
                AllOf(HasSubstr("'wpe.weight'"), HasSubstr("outside of an access window"),
                      HasSubstr("zero::ParameterAccess")));
    gpt_loss(*engine, batch, true);
    EXPECT_ERROR(UsageError, engine->module().forward(batch.tokens, batch.targets),
                 "parameter 'wpe.weight' is partitioned", "open a zero::ParameterAccess");
    const zero::ParameterAccess access(engine->module().parameters());
    EXPECT_NO_THROW(engine->module().forward(batch.tokens, batch.targets));
  });
}

TEST(Stage3Model, IsUsableAfterABackwardThatFailed) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world);
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    at::Tensor weight = engine->module().named_parameters()["wpe.weight"];
    const unsigned hook =
        weight.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("spoilt"); });
    EXPECT_ERROR(std::runtime_error, engine->forward(batch.tokens, batch.targets).backward(), "spoilt");
    weight.remove_hook(hook);
    EXPECT_ERROR(UsageError, engine->module().forward(batch.tokens, batch.targets),
                 "parameter 'wpe.weight' is partitioned",
                 "open a zero::ParameterAccess");  // no window is left
    engine->zero_grad();
    gpt_loss(*engine, batch, true);
    EXPECT_TRUE(engine->was_step_applied());
  });
}

TEST(Stage3Model, IsEvaluatedAfterDestroyAndReleasesWhatItKeeps) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world, zero_options({{"stage3_param_persistence_threshold", 100000}}));
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    const double loss = gpt_loss(*engine, batch, false);
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
    engine->empty_partition_cache();
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
    engine->destroy();
    const c10::NoGradGuard no_grad;
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
  });
}

TEST(Stage3Edit, SurvivesTheNextStepInBothCopies) {
  run_ranks(2, [](comm::World& world) {
    for (const char* precision : {"bf16", "fp32"}) {
      Json patch = {{"optimizer", {{"params", {{"lr", 1e-3}}}}}};
      if (precision == std::string("bf16")) patch["bf16"] = {{"enabled", true}};
      const auto engine = gpt_engine(3, world, patch);
      const FormulaData data{world.size(), 2, 11, 48};
      gpt_loss(*engine, data.batch(0, world.rank()), true);
      const at::Tensor weight = engine->module().named_parameters()["h.0.mlp.c_fc.weight"];
      const at::Tensor values =
          at::arange(weight.numel(), at::kFloat).view(weight.sizes()).to(weight.scalar_type());
      {
        const zero::GatheredParameters gathered({weight}, /*modifier_rank=*/0);
        const c10::NoGradGuard no_grad;
        if (world.rank() == 0) weight.copy_(values);
      }
      EXPECT_TRUE(safe_get_full_fp32_param(*engine, weight).equal(values.to(at::kFloat))) << precision;
      gpt_loss(*engine, data.batch(1, world.rank()), true);
      const at::Tensor master = safe_get_full_fp32_param(*engine, weight);
      EXPECT_TRUE(master.allclose(values.to(at::kFloat), 1e-3, 1e-2)) << precision;
      EXPECT_FALSE(master.equal(values.to(at::kFloat))) << precision;
      const zero::GatheredParameters gathered({weight});
      EXPECT_TRUE(weight.equal(master.to(weight.scalar_type()))) << precision;
    }
  });
}

/// A layer whose weight has more elements than masters follow at once in memory, 2^20.
TEST(Stage3Edit, ReachesTheMastersOfALargeShardOnADisk) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    for (const Json& patch : {Json::object(), Json{{"bf16", {{"enabled", true}}}}}) {
      const auto masters_after_edit = [&](const Json& zero) {
        auto layer = std::make_shared<torch::nn::LinearImpl>(1030, 1030);
        fill_parameters(*layer, 0.1);
        Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}}};
        config.merge_patch(at_stage(3, patch));
        config["zero_optimization"].update(zero);
        const auto engine = initialize(layer, {.config = config, .world = world}).engine;
        const at::Tensor weight = layer->weight;
        for (int step = 0; step < 2; ++step) {
          const at::Tensor input = at::arange(2 * 1030, at::kFloat).sin_().view({2, -1});
          engine->backward(engine->forward(input.to(weight.scalar_type())).to(at::kFloat).pow(2).mean());
          engine->step();
          if (step > 0) break;
          const zero::GatheredParameters gathered({weight}, /*modifier_rank=*/0);
          const c10::NoGradGuard no_grad;
          weight.copy_(at::arange(weight.numel(), at::kFloat).cos_().view(weight.sizes()));
        }
        return safe_get_full_fp32_param(*engine, weight).clone();
      };
      const Json on_disk = {{"device", "nvme"}, {"nvme_path", folder.string()}, {"max_in_cpu", 0}};
      const at::Tensor expected = masters_after_edit(Json::object());
      for (const char* home : {"cpu", "nvme"}) {
        const Json optimizer = {{"device", home}, {"nvme_path", folder.string()}};
        EXPECT_TRUE(masters_after_edit({{"offload_param", on_disk}, {"offload_optimizer", optimizer}})
                        .equal(expected))
            << patch << home;
      }
    }
  });
}

TEST(Stage3State, GoesInAndOutByName) {
  run_ranks(3, [](comm::World& world) {
    const auto source = gpt_engine(3, world, {{"bf16", {{"enabled", true}}}});
    const auto target = gpt_engine(3, world, {{"bf16", {{"enabled", true}}}});
    const FormulaData data{world.size(), 2, 11, 48};
    gpt_loss(*source, data.batch(0, world.rank()), true);
    std::vector<NamedTensor> state;
    {
      const zero::GatheredParameters gathered(source->module().parameters());
      for (const auto& item : source->module_state_dict()) state.push_back({item.name, item.tensor.clone()});
    }
    target->load_module_state_dict(state);
    {
      const zero::GatheredParameters gathered(source->module().parameters());
      expect_same_weights(target->module(), source->module());
    }
    const at::Tensor weight = target->module().named_parameters()["wpe.weight"];
    const at::Tensor master = safe_get_full_fp32_param(*target, weight);
    EXPECT_TRUE(master.equal(master.to(at::kBFloat16).to(at::kFloat)));
    const zero::GatheredParameters gathered({weight});
    EXPECT_TRUE(weight.equal(master.to(at::kBFloat16)));
  });
}

struct WideMlp : torch::nn::Module {
  static constexpr int64_t kWidth = 128, kLayers = 8;

  WideMlp() {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth))));
    }
    fill_parameters(*this, 0.1);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = at::gelu(layer->forward(x));
    return x.to(at::kFloat).pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
};

TEST(Stage3Bytes, HoldNoSecondCopyOfTheModelInForwardAndBackward) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& patch : {Json{{"torch_autocast", {{"enabled", true}, {"dtype", "bf16"}}}},
                              Json{{"bf16", {{"enabled", true}}}}}) {
      const bool is_autocast = patch.contains("torch_autocast");
      const AllocationCounter counter;
      const int64_t layer = WideMlp::kWidth * WideMlp::kWidth;
      const int64_t copy_bytes = 2 * WideMlp::kLayers * layer;  // of the model in 16 bits
      Json config = {{"train_micro_batch_size_per_gpu", 2}, {"optimizer", {{"type", "AdamW"}}}};
      config.merge_patch(at_stage(3, patch));
      config["zero_optimization"].update({{"reduce_bucket_size", layer},
                                          {"overlap_comm", false},
                                          {"stage3_param_persistence_threshold", 0},
                                          {"stage3_prefetch_bucket_size", layer},
                                          {"stage3_max_live_parameters", 2 * layer}});
      const auto engine = initialize(std::make_shared<WideMlp>(), {.config = config, .world = world}).engine;
      at::Tensor input = at::arange(2 * WideMlp::kWidth, at::kFloat).sin_().view({2, -1});
      if (!is_autocast) input = input.to(at::kBFloat16);
      int64_t between = 0, at_rest = 0, peak = 0;
      for (int step = 0; step < 3; ++step) {
        at_rest = counter.live_bytes();
        const at::Tensor loss = engine->forward(input);
        between = counter.live_bytes();
        engine->backward(loss);
        peak = counter.peak_bytes();
        engine->step();
      }
      EXPECT_LT(between - at_rest, copy_bytes / 4) << patch;
      // Half of the model in its own precision, masters, moments and gradients are held; a few layers are
      // whole at once.
      const int64_t held = engine->memory().total();
      EXPECT_LT(peak, held + copy_bytes / 2 + 16 * layer) << patch;
      EXPECT_LE(at_rest, held + 8 * layer + 100'000) << patch;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
