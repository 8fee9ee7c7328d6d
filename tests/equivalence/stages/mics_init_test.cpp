// Models that are born in blocks of ranks, under zero::MiCSInit or zero::Init.
#include <gtest/gtest.h>

#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/init.h"
#include "deepspeed/zero/make_whole.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/params/set_values.h"

#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

constexpr TinyGPTConfig kMicsGpt{.vocabulary = 48, .context = 11, .width = 14, .layers = 3, .heads = 2};

Json mics_born_config(int shard_size, const std::string& precision = "fp32") {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 20}}}};
  if (shard_size > 0) config["zero_optimization"]["mics_shard_size"] = shard_size;
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  return config;
}

/// Each rank draws weights of its own: those of rank 0 count.
template <class Scope>
std::shared_ptr<TinyGPT> born_under(const comm::World& world, const std::optional<Json>& config) {
  torch::manual_seed(5 + world.rank());
  zero::InitArguments arguments{.world = world, .max_whole_bytes = 2000};
  if (config) arguments.config_dict_or_path = *config;
  const Scope init(arguments);
  return std::make_shared<TinyGPT>(kMicsGpt);
}

std::shared_ptr<TinyGPT> built_whole(const comm::World& world) {
  torch::manual_seed(5 + world.rank());
  return std::make_shared<TinyGPT>(kMicsGpt);
}

std::vector<double> losses_of(const std::shared_ptr<TinyGPT>& model, const comm::World& world,
                              const Json& config) {
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  std::vector<double> losses;
  for (int64_t step = 0; step < 3; ++step) {
    const FormulaBatch batch =
        FormulaData{world.size(), 2, kMicsGpt.context, kMicsGpt.vocabulary}.batch(step, world.rank());
    const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
    engine->backward(loss);
    engine->step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(MicsInit, TrainsBitEqualToTheModelThatWasBuiltWhole) {
  run_ranks(4, [](comm::World& world) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const int shard_size : {1, 2, 4}) {
        const Json config = mics_born_config(shard_size, precision);
        const auto expected = losses_of(built_whole(world), world, config);
        EXPECT_EQ(losses_of(born_under<zero::MiCSInit>(world, config), world, config), expected);
        EXPECT_EQ(losses_of(born_under<zero::Init>(world, config), world, config), expected);
      }
    }
  });
}

TEST(MicsInit, HoldsAShardOfItsBlock) {
  run_ranks(4, [](comm::World& world) {
    for (const int shard_size : {1, 2, 4}) {
      const auto model = born_under<zero::MiCSInit>(world, mics_born_config(shard_size));
      for (const auto& param : model->parameters()) {
        EXPECT_EQ(zero::shard_of(param).numel(), (param.numel() + shard_size - 1) / shard_size);
      }
      const auto whole = built_whole(world);
      const zero::GatheredParameters gathered(model->parameters());
      for (const auto& item : whole->named_parameters()) {
        const at::Tensor of_rank_0 = item.value().detach().clone();
        world.group().broadcast(of_rank_0, 0);
        EXPECT_TRUE(model->named_parameters()[item.key()].equal(of_rank_0)) << item.key();
      }
    }
  });
}

// Cut over all ranks, or over other blocks: initialize() cuts them anew.
TEST(MicsInit, IsCutAgainForOtherBlocks) {
  run_ranks(4, [](comm::World& world) {
    for (const int shard_size : {1, 2, 0}) {
      const Json config = mics_born_config(shard_size);
      const auto expected = losses_of(built_whole(world), world, config);
      EXPECT_EQ(losses_of(born_under<zero::Init>(world, std::nullopt), world, config), expected);
      for (const int born : {1, 2, 4}) {
        const auto model = born_under<zero::MiCSInit>(world, mics_born_config(born));
        EXPECT_EQ(losses_of(model, world, config), expected) << born << " to " << shard_size;
      }
    }
  });
}

TEST(MicsInit, GoesFromEngineToEngine) {
  run_ranks(4, [](comm::World& world) {
    const auto model = built_whole(world);
    for (const int shard_size : {2, 1, 4, 0, 2}) {
      const auto engine = initialize(model, {.config = mics_born_config(shard_size), .world = world}).engine;
      engine->destroy({.keep_partitioned = true});
    }
    zero::make_whole(model->parameters());
    for (const auto& item : built_whole(world)->named_parameters()) {
      const at::Tensor of_rank_0 = item.value().detach().clone();
      world.group().broadcast(of_rank_0, 0);
      EXPECT_TRUE(model->named_parameters()[item.key()].equal(of_rank_0)) << item.key();
    }
  });
}

TEST(MicsInit, WritesOfConstructorsAndOfGatheredParametersReachAllBlocks) {
  run_ranks(4, [](comm::World& world) {
    for (const int shard_size : {1, 2}) {
      at::Tensor weight;
      {
        const zero::MiCSInit init(
            {.config_dict_or_path = mics_born_config(shard_size), .world = world, .max_whole_bytes = 0});
        const auto linear = torch::nn::Linear(6, 5);
        const auto other = torch::nn::Linear(60, 50);  // whose birth partitions the first
        weight = linear->weight;
        const c10::NoGradGuard no_grad;
        weight.fill_(1.5 + world.rank());  // late, so that it was gathered
        const auto third = torch::nn::Linear(60, 50);
        EXPECT_EQ(weight.sum().item<double>(), 45.0);
        const zero::GatheredParameters gathered({weight}, 2);
        weight.fill_(double(world.rank()));
      }
      const zero::GatheredParameters gathered({weight});
      EXPECT_EQ(weight.sum().item<double>(), 60.0);
    }
  });
}

TEST(MicsInit, NeedsAConfigThatSaysHowManyRanks) {
  run_ranks(4, [](comm::World& world) {
    EXPECT_ERROR(ConfigError, zero::MiCSInit({.world = world}), "config_dict_or_path", "mics_shard_size");
    EXPECT_ERROR(ConfigError, zero::MiCSInit({.config_dict_or_path = mics_born_config(0), .world = world}),
                 "mics_shard_size: got -1", "a divisor of 4");
    EXPECT_ERROR(ConfigError, zero::MiCSInit({.config_dict_or_path = mics_born_config(3), .world = world}),
                 "mics_shard_size: got 3", "a divisor of 4");
    const zero::MiCSInit without({.enabled = false, .world = world});
    const zero::Init outer({.config_dict_or_path = mics_born_config(2), .world = world});
    const zero::Init inner({.world = world});
    EXPECT_ERROR(UsageError, zero::Init({.config_dict_or_path = mics_born_config(4), .world = world}),
                 "another zero::Init is active on this thread", "mics_shard_size");
  });
}

}  // namespace
}  // namespace deepspeed::testing
