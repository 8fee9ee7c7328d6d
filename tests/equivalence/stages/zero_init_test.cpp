// Models that are born under zero::Init train as those that were built whole.
#include <ATen/ops/arange.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/load_weights.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/init.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/move_to_meta.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr TinyGPTConfig kBornGpt{.vocabulary = 48, .context = 11, .width = 14, .layers = 3, .heads = 2};

Json born_config(const std::string& precision, int stage = 3) {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 20}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  return config;
}

/// Returns a model with random weights that differ between ranks; rank 0's are the ones that count.
std::shared_ptr<TinyGPT> random_gpt(const comm::World& world, const Json& config, bool is_born_partitioned) {
  torch::manual_seed(5 + world.rank());
  const zero::Init init({.config_dict_or_path = config,
                         .enabled = is_born_partitioned,
                         .world = world,
                         .max_whole_bytes = 2000});
  return std::make_shared<TinyGPT>(kBornGpt);
}

auto engine_of(const std::shared_ptr<TinyGPT>& model, const comm::World& world, const Json& config) {
  return initialize(model, {.config = config, .world = world}).engine;
}

FormulaBatch born_batch(const comm::World& world, int64_t step) {
  return FormulaData{world.size(), 2, kBornGpt.context, kBornGpt.vocabulary}.batch(step, world.rank());
}

template <class Engine>
double train_step(Engine& engine, const FormulaBatch& batch) {
  const at::Tensor loss = engine.forward(batch.tokens, batch.targets);
  engine.backward(loss);
  engine.step();
  return loss.template item<double>();
}

void expect_equal_models(torch::nn::Module& left, torch::nn::Module& right) {
  const zero::GatheredParameters gathered_left(left.parameters());
  const zero::GatheredParameters gathered_right(right.parameters());
  const auto expected = right.named_parameters();
  for (const auto& item : left.named_parameters())
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
}

class BornPartitioned : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, BornPartitioned, ::testing::Values(1, 2, 3, 4));

TEST_P(BornPartitioned, TrainsBitEqualToTheModelThatWasBuiltWhole) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const char* precision : {"fp32", "bf16"}) {
      const Json config = born_config(precision);
      const auto whole = engine_of(random_gpt(world, config, false), world, config);
      const auto born = engine_of(random_gpt(world, config, true), world, config);
      expect_equal_models(born->module(), whole->module());
      for (int64_t step = 0; step < 4; ++step) {
        const FormulaBatch batch = born_batch(world, step);
        EXPECT_EQ(train_step(*born, batch), train_step(*whole, batch)) << precision << " " << step;
      }
      expect_equal_models(born->module(), whole->module());
    }
  });
}

TEST_P(BornPartitioned, IsTakenOverFromWhereverItsShardsAre) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    const auto with_params_in = [&](const char* precision, const char* device) {
      Json config = born_config(precision);
      config["aio"] = {{"block_size", 4096}};
      config["log_level"] = "error";
      config["zero_optimization"]["offload_param"] = {
          {"device", device}, {"nvme_path", folder.string()}, {"max_in_cpu", 0}, {"buffer_size", 100'000}};
      return config;
    };
    const auto build = [&](const Json& config, bool is_born_partitioned) {
      torch::manual_seed(5 + world.rank());
      const zero::Init init({.config_dict_or_path = config,
                             .enabled = is_born_partitioned,
                             .world = world,
                             .max_whole_bytes = 2000});
      return std::make_shared<TinyGPT>(
          TinyGPTConfig{.vocabulary = 48, .context = 11, .width = 64, .layers = 2, .heads = 2});
    };
    for (const char* precision : {"fp32", "bf16"}) {
      const Json plain = with_params_in(precision, "none");
      const auto whole = engine_of(build(plain, false), world, plain);
      std::vector<double> losses;
      for (int64_t step = 0; step < 3; ++step) losses.push_back(train_step(*whole, born_batch(world, step)));
      for (const auto& [from, to] :
           {std::pair("cpu", "cpu"), {"nvme", "nvme"}, {"nvme", "none"}, {"none", "nvme"}}) {
        const auto born =
            engine_of(build(with_params_in(precision, from), true), world, with_params_in(precision, to));
        for (int64_t step = 0; step < 3; ++step) {
          EXPECT_EQ(train_step(*born, born_batch(world, step)), losses[static_cast<size_t>(step)])
              << precision << " from " << from << " to " << to;
        }
        expect_equal_models(born->module(), whole->module());
      }
    }
  });
}

TEST(BornPartitionedModel, KeepsFrozenAndUnusedParametersThroughTheEngine) {
  run_ranks(3, [](comm::World& world) {
    Json config = born_config("fp32");
    const auto make = [&](bool is_born_partitioned) {
      const zero::Init init({.enabled = is_born_partitioned, .world = world});
      return std::make_shared<OddNet>();
    };
    const auto born = initialize(make(true), {.config = config, .world = world}).engine;
    const auto whole = initialize(make(false), {.config = config, .world = world}).engine;
    for (int64_t step = 0; step < 3; ++step) {
      const auto [inputs, targets] = odd_batch(12 * step + 4 * world.rank(), 4);
      for (auto* engine : {born.get(), whole.get()}) {
        engine->backward(engine->forward(inputs, targets));
        engine->step();
      }
    }
    EXPECT_FALSE(born->module().named_parameters()["frozen"].requires_grad());
    expect_equal_models(born->module(), whole->module());
  });
}

TEST(BornPartitionedModel, IsUsedBeforeTheEngineTakesItOver) {
  run_ranks(2, [](comm::World& world) {
    const Json config = born_config("fp32");
    const auto model = random_gpt(world, config, true);
    const FormulaBatch batch = born_batch(world, 0);
    double before = 0.0;
    {
      const c10::NoGradGuard no_grad;
      const zero::ParameterAccess access(model->parameters());
      before = model->forward(batch.tokens, batch.targets).item<double>();
    }
    at::Tensor weight = model->named_parameters()["wpe.weight"];
    {
      const zero::GatheredParameters gathered({weight}, 0);
      const c10::NoGradGuard no_grad;
      weight.add_(0.0);
    }
    const auto engine = engine_of(model, world, config);
    EXPECT_EQ(engine->forward(batch.tokens, batch.targets).item<double>(), before);
    EXPECT_ERROR(UsageError, engine_of(model, world, config), "parameter 'wte.weight' is with another engine",
                 "call its destroy()");  // it belongs to an engine now
  });
}

TEST(BornPartitionedModel, IsSavedAndLoaded) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json config = born_config("bf16");
    const auto source = engine_of(random_gpt(world, config, true), world, config);
    train_step(*source, born_batch(world, 0));
    source->save_checkpoint(folder.path());
    torch::manual_seed(99);
    const auto target = [&] {
      std::shared_ptr<TinyGPT> model;
      {
        const zero::Init init({.config_dict_or_path = config, .world = world});
        model = std::make_shared<TinyGPT>(kBornGpt);
      }
      return engine_of(model, world, config);
    }();
    target->load_checkpoint(folder.path());
    EXPECT_EQ(train_step(*target, born_batch(world, 1)), train_step(*source, born_batch(world, 1)));
    expect_equal_models(target->module(), source->module());
  });
}

TEST(BornPartitionedModel, TakesItsWeightsFromAFileShardByShardOnTheMetaDevice) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json config = born_config("fp32");
    const auto source = engine_of(random_gpt(world, config, true), world, config);
    train_step(*source, born_batch(world, 0));
    source->save_checkpoint(folder.path());
    const auto model = std::make_shared<TinyGPT>(kBornGpt);
    move_to_meta(*model);
    EXPECT_THAT(error_of<UsageError>([&] { engine_of(model, world, config); }),
                AllOf(HasSubstr("meta device"), HasSubstr("zero::Init({.module = model})")));
    const zero::Init init({.module = model, .config_dict_or_path = config, .world = world});
    const auto target = engine_of(model, world, config);
    target->load_checkpoint(folder.path());
    EXPECT_EQ(train_step(*target, born_batch(world, 1)), train_step(*source, born_batch(world, 1)));
  });
}

TEST(BornPartitionedModel, IsRefusedAtOtherStagesAndWhileItIsBuilt) {
  run_ranks(2, [](comm::World& world) {
    const auto model = random_gpt(world, born_config("fp32"), true);
    for (const int stage : {0, 1, 2}) {
      EXPECT_THAT(error_of<UsageError>([&] { engine_of(model, world, born_config("fp32", stage)); }),
                  AllOf(HasSubstr("'wte.weight'"), HasSubstr("zero::Init"),
                        HasSubstr("zero_optimization.stage is " + std::to_string(stage)),
                        HasSubstr("enabled = false")));
    }
    const zero::Init init({.world = world, .max_whole_bytes = 0});
    const auto unfinished = std::make_shared<TinyGPT>(kBornGpt);
    EXPECT_THAT(error_of<UsageError>([&] { engine_of(unfinished, world, born_config("fp32")); }),
                HasSubstr("a zero::Init that is still active"));
  });
}

TEST(BornPartitionedModel, IsRefusedIfItsRanksAreNotTheEngines) {
  run_ranks(2, [](comm::World& world) {
    const auto alone = world.new_group({world.rank()}, "alone" + std::to_string(world.rank()));
    const auto other = world.new_group({1 - world.rank()}, "alone" + std::to_string(1 - world.rank()));
    std::shared_ptr<TinyGPT> model;
    {
      const zero::Init init({.data_parallel_group = alone});
      model = std::make_shared<TinyGPT>(kBornGpt);
    }
    EXPECT_THAT(error_of<UsageError>([&] { engine_of(model, world, born_config("fp32")); }),
                AllOf(HasSubstr("'wte.weight'"), HasSubstr("over 1 ranks"), HasSubstr("expected 2")));
  });
}

TEST(BornPartitionedModel, HoldsWhatTheFormulaSays) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const char* precision : {"fp32", "bf16"}) {
        const AllocationCounter counter;
        Json config = born_config(precision);
        config["zero_optimization"].update(
            {{"stage3_param_persistence_threshold", 0}, {"reduce_bucket_size", 500}});
        const auto engine = engine_of(random_gpt(world, config, true), world, config);
        int64_t shards = 0;
        for (const at::Tensor& param : engine->module().parameters())
          shards += (param.numel() + world.size() - 1) / world.size();
        for (int64_t step = 0; step < 2; ++step) train_step(*engine, born_batch(world, step));
        // Weight, gradient and two moments; in 16 bits the fp32 weight besides.
        const int64_t bytes = precision == std::string("fp32") ? 4 + 4 + 8 : 2 + 2 + 4 + 8;
        EXPECT_EQ(engine->memory().total(), bytes * shards) << precision;
        EXPECT_GE(counter.live_bytes(), bytes * shards) << precision;
        EXPECT_LE(counter.live_bytes(), bytes * shards + 20'000) << precision;
      }
    });
  }
}

}  // namespace
}  // namespace deepspeed::testing
