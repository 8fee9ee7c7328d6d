#include "deepspeed/plan/memory_estimate.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/params/set_values.h"

#include "tests/support/error_of.h"
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
  const auto engine = initialize(planned_model(), {.config = config, .world = world}).engine;
  const testing::FormulaData data{world.size(), 1, 7, 33};
  const auto batch = data.batch(0, world.rank());
  engine->backward(engine->forward(batch.tokens, batch.targets));
  engine->step();
  return engine->memory();
}

TEST(MemoryEstimate, IsWhatTheEngineHoldsWithEveryOptimizer) {
  for (const char* optimizer : {"AdamW", "SGD", "Lion", "Adagrad", "Muon", "RMSprop"}) {
    for (const int stage : {0, 1, 2, 3}) {
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

TEST(MemoryEstimate, KnowsWhereNewWeightsWaitForTheStep) {
  const Json unchecked = {{"bf16", {{"check_grad_overflow", false}}}};
  const Json split = {{"bf16", {{"split_master_weights", true}}}};
  const Json fp32 = {{"bf16", {{"enabled", false}}}};
  for (const int stage : {2, 3}) {
    for (const double ratio : stage == 3 ? std::vector{1.0, 0.5} : std::vector{1.0}) {
      for (const Json& patch : {Json(Json::object()), unchecked, split, fp32}) {
        Json config = planned_config("AdamW", stage);
        config.merge_patch(patch);
        config["gradient_clipping"] = 0.0;
        config["zero_optimization"]["sub_group_size"] = 100;
        config["zero_optimization"]["offload_optimizer"] = {
            {"device", "cpu"}, {"super_offload", true}, {"ratio", ratio}};
        testing::run_ranks(2, [&](comm::World& world) {
          const auto estimate = zero::estimate_model_states(describe_module(planned_model()), config, 2);
          const zero::MemoryBytes memory = measured(config, world);
          EXPECT_EQ(estimate.states.swap_buffers, memory.swap_buffers) << config;
          EXPECT_EQ(estimate.states.master_weights, memory.master_weights) << config;
          EXPECT_EQ(estimate.states.total(), memory.total()) << config;
          EXPECT_EQ(memory.swap_buffers == 0, (patch == unchecked && ratio == 1.0) || patch == fp32);
        });
      }
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

std::shared_ptr<TinyGPT> offloaded_model() {
  auto model = std::make_shared<TinyGPT>(
      testing::TinyGPTConfig{.vocabulary = 128, .context = 8, .width = 64, .layers = 3, .heads = 4});
  model->parameters().front().set_requires_grad(false);
  return model;
}

/// On the disk are shards of a page and more, except for the first 5000 elements.
Json offload_config(const std::string& precision, const std::string& params, const std::string& optimizer,
                    const std::string& folder) {
  Json config = {
      {"train_micro_batch_size_per_gpu", 1},
      {"log_level", "error"},
      {"aio", {{"block_size", 4096}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
      {"zero_optimization",
       {{"stage", 3},
        {"sub_group_size", 5000},
        {"offload_param",
         {{"device", params}, {"nvme_path", folder}, {"max_in_cpu", 5000}, {"buffer_size", 70'000}}},
        {"offload_optimizer", {{"device", optimizer}, {"nvme_path", folder}}}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  return config;
}

TEST(MemoryEstimate, SaysWhatIsInMemoryAndWhatOnTheDisk) {
  const testing::TemporaryFolder folder;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* params : {"none", "cpu", "nvme"}) {
      for (const char* optimizer : {"none", "cpu", "nvme"}) {
        const Json config = offload_config(precision, params, optimizer, folder.string());
        testing::run_ranks(2, [&](comm::World& world) {
          SCOPED_TRACE(message(precision, ": parameters in ", params, ", optimizer in ", optimizer));
          const auto estimate = zero::estimate_model_states(describe_module(offloaded_model()), config, 2);
          const auto engine = initialize(offloaded_model(), {.config = config, .world = world}).engine;
          const testing::FormulaData data{world.size(), 1, 8, 128};
          const auto batch = data.batch(0, world.rank());
          engine->backward(engine->forward(batch.tokens, batch.targets));
          engine->step();
          const zero::MemoryBytes memory = engine->memory();
          EXPECT_EQ(estimate.states.parameters, memory.parameters);
          EXPECT_EQ(estimate.states.gradients, memory.gradients);
          EXPECT_EQ(estimate.states.master_weights, memory.master_weights);
          EXPECT_EQ(estimate.states.optimizer_states, memory.optimizer_states);
          EXPECT_EQ(estimate.placed.in_host, estimate.total());
          EXPECT_EQ(estimate.placed.on_device, 0);
          int64_t held = 0, on_disk = 0;
          for (const at::Tensor& param : engine->module().parameters()) {
            held += zero::held_bytes(param);
            on_disk += zero::disk_bytes(param);
          }
          EXPECT_EQ(estimate.states.parameters + estimate.frozen_parameters, held);
          EXPECT_EQ(on_disk > 0, params == std::string("nvme"));
          EXPECT_EQ(estimate.placed.on_disk, estimate.states.on_disk);
          EXPECT_GE(estimate.placed.on_disk, on_disk);
          EXPECT_EQ(estimate.placed.on_disk > on_disk, optimizer == std::string("nvme"));
          EXPECT_LE(estimate.placed.on_disk, memory.on_disk);
          const int64_t pages = 4096 * 100;  // each tensor's last one
          EXPECT_LE(memory.on_disk, estimate.placed.on_disk + pages);
        });
      }
    }
  }
}

TEST(MemoryEstimate, TellsTheDevicesMemoryFromTheHosts) {
  const auto estimate = [](const char* precision, const char* params, const char* optimizer) {
    return zero::estimate_model_states(describe_module(offloaded_model()),
                                       offload_config(precision, params, optimizer, "/tmp"), 2, at::kCUDA);
  };
  const auto sum = [](const zero::PlacedBytes& placed) {
    return placed.on_device + placed.in_host + placed.on_disk;
  };
  const auto none = estimate("bf16", "none", "none");
  const int64_t weights = none.states.parameters + none.frozen_parameters;
  EXPECT_EQ(none.placed.on_device, none.total());
  EXPECT_EQ(none.placed.in_host, 0);
  const auto params = estimate("bf16", "cpu", "none");
  EXPECT_EQ(params.placed.in_host, weights);
  EXPECT_EQ(params.placed.on_device, none.total() - weights);
  const auto optimizer = estimate("bf16", "none", "cpu");
  EXPECT_EQ(optimizer.placed.on_device, weights);
  EXPECT_EQ(optimizer.placed.in_host, none.total() - weights);
  const auto both = estimate("bf16", "cpu", "nvme");
  EXPECT_EQ(both.placed.on_device, 0);
  EXPECT_EQ(both.placed.in_host, weights + none.states.gradients);
  EXPECT_EQ(both.placed.on_disk, none.states.master_weights + none.states.optimizer_states);
  const auto disk = estimate("bf16", "nvme", "none");
  EXPECT_GT(disk.placed.in_host, 0);  // what is small, and the first elements
  EXPECT_GT(disk.placed.on_disk, weights / 2);
  EXPECT_EQ(disk.placed.in_host + disk.placed.on_disk, weights);
  EXPECT_EQ(sum(disk.placed), none.total());
  // In fp32 the weights are the masters, unless they lie elsewhere than they are stepped.
  EXPECT_EQ(estimate("fp32", "none", "none").states.master_weights, 0);
  EXPECT_EQ(estimate("fp32", "cpu", "cpu").states.master_weights, 0);
  const auto apart = estimate("fp32", "none", "cpu");
  EXPECT_EQ(apart.states.master_weights, apart.states.parameters);
  EXPECT_EQ(apart.placed.on_device, apart.states.parameters + apart.frozen_parameters);
  EXPECT_EQ(estimate("fp32", "cpu", "none").placed.on_device,
            apart.states.master_weights + apart.states.gradients + apart.states.optimizer_states);
}

TEST(MemoryEstimate, CountsOnlyTheParametersForEvaluation) {
  const testing::TemporaryFolder folder;
  for (const char* params : {"none", "cpu", "nvme"}) {
    Json config = offload_config("bf16", params, "none", folder.string());
    config.erase("optimizer");
    testing::run_ranks(2, [&](comm::World& world) {
      const auto model = offloaded_model();
      for (const at::Tensor& param : model->parameters()) param.set_requires_grad(false);
      const auto estimate = zero::estimate_model_states(describe_module(model), config, 2);
      const auto engine = initialize(model, {.config = config, .world = world}).engine;
      EXPECT_EQ(estimate.total(), engine->memory().parameters) << params;
      EXPECT_EQ(estimate.placed.on_disk, engine->memory().on_disk) << params;
      EXPECT_EQ(estimate.placed.on_disk > 0, params == std::string("nvme"));
    });
  }
}

TEST(MemoryEstimate, IsTheSameForAModelWithoutMemory) {
  const Json config = planned_config("AdamW", 3);
  EngineModel model = describe_module(planned_model());
  const auto expected = zero::estimate_model_states(model, config, 4);
  for (NamedTensor& param : model.parameters) {
    const bool is_trained = param.tensor.requires_grad();
    param.tensor = param.tensor.detach().to(at::kMeta).set_requires_grad(is_trained);
  }
  EXPECT_EQ(zero::estimate_model_states(model, config, 4).total(), expected.total());
}

TEST(MemoryEstimate, IsATableForAllStages) {
  std::ostringstream out;
  zero::estimate_model_states_of_all_stages(describe_module(planned_model()), planned_config("AdamW", 0), 8,
                                            out);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_NE(text.find("on disk"), std::string::npos) << text;
  out.str("");
  Json offloaded = offload_config("bf16", "nvme", "cpu", "/tmp");
  offloaded["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5;
  zero::estimate_model_states_of_all_stages(describe_module(planned_model()), offloaded, 8, out, at::kCUDA);
  EXPECT_EQ(std::ranges::count(out.str(), '\n'), 6) << out.str();
}

TEST(MemoryEstimate, RefusesAWorldOfNoRanks) {
  EXPECT_ERROR(UsageError,
               zero::estimate_model_states(describe_module(planned_model()), planned_config("AdamW", 1), 0),
               "a world of 0 ranks, expected 1 or more");
}

}  // namespace
}  // namespace deepspeed
