#include "deepspeed/engine/load_weights.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/places/places.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/small_net.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::error_of;
using testing::FormulaBatch;
using testing::FormulaData;
using ::testing::HasSubstr;
using testing::SmallNet;

const fs::path kGoldenFolder = testing::source_folder() / "tests/golden";

/// As tests/golden/write_weights.py fills them, in the order of named_parameters().
void expect_formula_weights(SmallNet& model) {
  int64_t k = 0;
  for (const auto& item : model.named_parameters()) {
    if (item.key() == "head.weight") continue;
    const at::Tensor& weight = item.value();
    const at::Tensor expected = k + torch::arange(weight.numel()).view(weight.sizes()).to(at::kFloat) / 16;
    EXPECT_TRUE(weight.detach().to(at::kFloat).equal(expected)) << item.key();
    ++k;
  }
  EXPECT_EQ(k, 6);
  EXPECT_EQ(model.named_buffers()["calls"].item<int64_t>(), 8);
}

std::shared_ptr<SmallNet> small_net() { return std::make_shared<SmallNet>(7, 5); }

Json small_config(int stage, const char* precision) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", stage}}}};
  if (std::string(precision) != "fp32") config[precision] = {{"enabled", true}};
  return config;
}

TEST(LoadWeights, FillsAModelFromEachForm) {
  for (const char* name : {"bin", "safetensors", "bin_shards", "safetensors_shards", "bin/pytorch_model.bin",
                           "safetensors_shards/model.safetensors.index.json"}) {
    SCOPED_TRACE(name);
    const auto model = small_net();
    EXPECT_EQ(load_weights(model, kGoldenFolder / "weights" / name).loaded.size(), 8u);
    expect_formula_weights(*model);
    EXPECT_TRUE(model->parameters()[0].requires_grad());
  }
}

TEST(LoadWeights, NeedsARenameRuleForAWrappedModel) {
  const auto model = small_net();
  const fs::path file = kGoldenFolder / "weights/trainer.pt";
  EXPECT_THAT(error_of<CheckpointError>([&] { load_weights(model, file); }),
              AllOf(HasSubstr("trainer.pt"), HasSubstr("lacks"), HasSubstr("begin with 'module.'")));
  load_weights(model, file, {.rename_rules = {{"^module\\.", ""}}});
  expect_formula_weights(*model);
}

TEST(LoadWeights, FillsAModelInAHolder) {
  torch::nn::Linear linear(5, 5);
  load_weights(linear, kGoldenFolder / "weights/bin",
               {.rename_rules = {{"^hidden\\.", ""}, {"^.+\\..+$", ""}, {"^(gain|scale|calls)$", ""}}});
  EXPECT_EQ(linear->bias.detach()[4].item<float>(), 5.25F);
}

// Training after loading: as if the model had been born with these weights, at every stage.
TEST(LoadWeights, LetsTrainingContinue) {
  const FormulaData data{2, 4, 6, 7};
  testing::run_ranks(2, [&](comm::World& world) {
    std::vector<double> expected;
    for (const bool on_engine : {false, true}) {
      for (const int stage : {0, 1, 2, 3}) {
        const auto model = small_net();
        if (!on_engine) load_weights(model, kGoldenFolder / "weights/safetensors_shards");
        auto engine = initialize(model, {.config = small_config(stage, "fp32"), .world = world}).engine;
        if (on_engine) load_weights(*engine, kGoldenFolder / "weights/safetensors_shards");
        std::vector<double> losses;
        for (int64_t step = 0; step < 3; ++step) {
          const FormulaBatch batch = data.batch(0, world.rank());
          const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
          engine->backward(loss);
          engine->step();
          losses.push_back(loss.item<double>());
        }
        if (expected.empty()) expected = losses;
        EXPECT_LT(losses[2], losses[0]);
        for (size_t step = 0; step < losses.size(); ++step)
          EXPECT_NEAR(losses[step], expected[step], 2e-6 * expected[step]) << stage << " " << on_engine;
      }
    }
  });
}

TEST(LoadWeights, RenewsTheFp32WeightsOfAnEngine) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      auto engine = initialize(small_net(), {.config = small_config(stage, "bf16"), .world = world}).engine;
      load_weights(*engine, kGoldenFolder / "weights/bin");
      const zero::GatheredParameters gathered(engine->module().parameters());
      expect_formula_weights(engine->module());
      for (const auto& item : engine->module().named_parameters()) {
        if (!item.value().requires_grad()) continue;
        const at::Tensor master = safe_get_full_fp32_param(*engine, item.value());
        EXPECT_TRUE(master.equal(item.value().detach().to(at::kFloat))) << item.key();
      }
    }
  });
}

TEST(LoadWeights, FailsOnAllRanksAndChangesNothingIfOneFails) {
  testing::run_ranks(2, [](comm::World& world) {
    auto engine = initialize(small_net(), {.config = small_config(1, "fp32"), .world = world}).engine;
    const fs::path path = kGoldenFolder / (world.rank() == 1 ? "weights/absent.bin" : "weights/bin");
    EXPECT_THAT(error_of<Error>([&] { load_weights(*engine, path); }), HasSubstr("absent.bin"));
    EXPECT_EQ(engine->module().named_parameters()["gain"].item<float>(), 0.0F);
  });
}

// What DeepSpeed saved after three steps: the next forward gives the loss of its own fourth.
TEST(LoadStateDictFromZeroCheckpoint, GivesTheModelWithDeepSpeedsWeights) {
  for (const char* name : {"stage1_fp32", "stage2_fp32", "stage2_bf16"}) {
    const fs::path dir = kGoldenFolder / "deepspeed_checkpoints" / name;
    std::ifstream stream(dir / "expected.json");
    const Json expected = Json::parse(stream);
    const auto model = load_state_dict_from_zero_checkpoint(small_net(), dir);
    const FormulaBatch batch = FormulaData{2, 4, 6, 7}.batch(3, /*rank=*/1);
    const double wanted = expected.at("losses_after_save")[0][1].get<double>();
    const double tolerance = std::string(name).ends_with("bf16") ? 1e-2 : 1e-5;
    EXPECT_NEAR(model->forward(batch.tokens, batch.targets).item<double>(), wanted, tolerance * wanted)
        << name;
  }
}

TEST(LoadStateDictFromZeroCheckpoint, IsStrictUnlessTold) {
  const fs::path dir = kGoldenFolder / "deepspeed_checkpoints/stage2_fp32";
  torch::nn::Linear linear(5, 5);
  EXPECT_THAT(error_of<CheckpointError>([&] { load_state_dict_from_zero_checkpoint(linear, dir); }),
              AllOf(HasSubstr("lacks 'weight', 'bias'"), HasSubstr("global_step3")));
  const auto same = load_state_dict_from_zero_checkpoint(
      linear, dir, "global_step3", {.strict = false, .rename_rules = {{"^hidden\\.", ""}}});
  EXPECT_EQ(same.ptr(), linear.ptr());
  const auto model = load_state_dict_from_zero_checkpoint(small_net(), dir);
  EXPECT_TRUE(linear->weight.equal(model->named_parameters()["hidden.weight"]));
}

}  // namespace
}  // namespace deepspeed
