#include "deepspeed/engine/memory_estimate.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/initialize.h"

#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed {
namespace {

using testing::TinyGPT;

std::shared_ptr<TinyGPT> planned_model() {
  auto model = std::make_shared<TinyGPT>(
      testing::TinyGPTConfig{.vocabulary = 33, .context = 7, .width = 10, .layers = 2, .heads = 2});
  model->parameters().front().set_requires_grad(false);
  return model;
}

Json planned_config(const char* optimizer, int stage) {
  return {{"train_micro_batch_size_per_gpu", 1},
          {"zero_allow_untested_optimizer", true},
          {"bf16", {{"enabled", true}}},
          {"optimizer", {{"type", optimizer}, {"params", {{"lr", 0.01}}}}},
          {"zero_optimization", {{"stage", stage}}}};
}

zero::MemoryBytes measured(const Json& config, const comm::World& world) {
  const auto engine = std::get<0>(initialize(planned_model(), {.config = config, .world = world}));
  const testing::FormulaData data{world.size(), 1, 7, 33};
  const auto batch = data.batch(0, world.rank());
  engine->backward(engine->forward(batch.tokens, batch.targets));
  engine->step();
  return engine->memory();
}

TEST(MemoryEstimate, IsWhatTheEngineHoldsWithEveryOptimizer) {
  for (const char* optimizer : {"AdamW", "SGD", "Lion", "Adagrad", "Muon", "RMSprop"}) {
    for (const int stage : {0, 1, 2, 3}) {
      if (stage == 3 && std::string(optimizer) == "Muon") continue;  // needs whole matrices
      const Json config = planned_config(optimizer, stage);
      testing::run_ranks(2, [&](comm::World& world) {
        SCOPED_TRACE(message(optimizer, " at stage ", stage));
        const auto estimate = zero::estimate_model_states(describe_module(planned_model()), config, 2);
        const zero::MemoryBytes memory = measured(config, world);
        EXPECT_EQ(estimate.states.parameters, memory.parameters);
        EXPECT_EQ(estimate.states.gradients, memory.gradients);
        EXPECT_EQ(estimate.states.master_weights, memory.master_weights);
        EXPECT_EQ(estimate.states.optimizer_states, memory.optimizer_states);
        const int64_t frozen = 33 * 10;
        EXPECT_EQ(estimate.frozen_parameters, 2 * (stage == 3 ? frozen / 2 : frozen));
      });
    }
  }
}

TEST(MemoryEstimate, KnowsEveryFormOfMastersAndMoments) {
  const Json split = {{"split_master_weights", true}};
  const Json bf16 = {{"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [of_bf16, moments, bytes] : {std::tuple(Json::object(), "fp32", 16),
                                                  {split, "fp32", 14},
                                                  {split, "bf16", 10},
                                                  {bf16, "bf16", 8}}) {
      if (stage == 0 && bytes == 8) continue;  // needs ZeRO
      Json config = planned_config("AdamW", stage);
      config["bf16"].update(of_bf16);
      config["optimizer"]["params"]["moment_dtype"] = moments;
      testing::run_ranks(1, [&, of_a_parameter = bytes](comm::World& world) {
        const auto estimate = zero::estimate_model_states(describe_module(planned_model()), config, 1);
        const zero::MemoryBytes memory = measured(config, world);
        EXPECT_EQ(estimate.states.total(), memory.total()) << config;
        EXPECT_EQ(memory.total(), memory.parameters / 2 * of_a_parameter) << config;
      });
    }
  }
}

TEST(MemoryEstimate, CountsWhatIsOnTheDiskApart) {
  const testing::TemporaryFolder folder;
  for (const auto& [ratio, is_split] : {std::pair(1.0, false), {0.5, false}, {0.5, true}}) {
    Json config = planned_config("AdamW", 3);
    config["bf16"]["split_master_weights"] = is_split;
    config["zero_optimization"]["sub_group_size"] = 100;
    config["zero_optimization"]["offload_optimizer"] = {
        {"device", "nvme"}, {"nvme_path", folder.string()}, {"ratio", ratio}};
    testing::run_ranks(2, [&, ratio = ratio](comm::World& world) {
      const auto estimate = zero::estimate_model_states(describe_module(planned_model()), config, 2);
      const zero::MemoryBytes memory = measured(config, world);
      EXPECT_EQ(estimate.states.master_weights, memory.master_weights) << ratio;
      EXPECT_EQ(estimate.states.optimizer_states, memory.optimizer_states) << ratio;
      EXPECT_EQ(memory.master_weights == 0, ratio == 1.0);
      EXPECT_GT(estimate.states.on_disk, 0);
      EXPECT_LE(estimate.states.on_disk, memory.on_disk);  // which ends with whole pages
    });
  }
}

TEST(MemoryEstimate, OfAModelWithoutMemoryHasTheSameNumbers) {
  const Json config = planned_config("AdamW", 3);
  EngineModel model = describe_module(planned_model());
  const auto expected = zero::estimate_model_states(model, config, 4);
  for (zero::NamedTensor& param : model.parameters) {
    const bool is_trained = param.tensor.requires_grad();
    param.tensor = param.tensor.detach().to(at::kMeta).set_requires_grad(is_trained);
  }
  EXPECT_EQ(zero::estimate_model_states(model, config, 4).total(), expected.total());
}

TEST(MemoryEstimate, OfAllStagesIsATable) {
  std::ostringstream out;
  zero::estimate_model_states_of_all_stages(describe_module(planned_model()), planned_config("AdamW", 0), 8,
                                            out);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
}

TEST(MemoryEstimate, RefusesAWorldOfNoRanks) {
  EXPECT_THROW(zero::estimate_model_states(describe_module(planned_model()), planned_config("AdamW", 1), 0),
               UsageError);
}

}  // namespace
}  // namespace deepspeed
