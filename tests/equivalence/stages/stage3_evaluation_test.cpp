// Stage 3 without an optimizer: an engine for evaluation alone, on one to four ranks.
#include <filesystem>

#include <ATen/ops/equal.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json evaluation_config(int stage, Json patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4}, {"zero_optimization", {{"stage", stage}}}};
  if (stage == 3) {
    config["zero_optimization"].update(
        {{"stage3_param_persistence_threshold", 13}, {"stage3_gather_16bit_weights_on_model_save", true}});
  }
  config.merge_patch(patch);
  return config;
}

auto odd_engine(comm::World& world, const Json& config, uint64_t seed = 1) {
  auto engine = initialize(std::make_shared<OddNet>(0.0, seed), {.config = config, .world = world}).engine;
  engine->eval();
  return engine;
}

at::Tensor odd_loss(OddNet& model, int64_t first) {
  const at::NoGradGuard no_grad;
  const auto [inputs, targets] = odd_batch(first, 4);
  return model.forward(inputs.to(model.parameters().front().scalar_type()), targets);
}

/// Trains two steps at the stage and saves.
void save_trained(comm::World& world, int stage, const std::string& folder) {
  const Json patch = {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}};
  const auto engine =
      initialize(std::make_shared<OddNet>(), {.config = evaluation_config(stage, patch), .world = world})
          .engine;
  for (int64_t step = 0; step < 2; ++step) {
    const auto [inputs, targets] = odd_batch(8 * step + 4 * world.rank(), 4);
    engine->backward(engine->forward(inputs, targets));
    engine->step();
  }
  engine->save_checkpoint(folder);
}

class Stage3Evaluation : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stage3Evaluation, ::testing::Values(1, 2, 3, 4));

TEST_P(Stage3Evaluation, EqualsTheWholeModel) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const char* precision : {"", "bf16"}) {
      Json patch = Json::object();
      if (*precision != 0) patch[precision] = {{"enabled", true}};
      const auto whole = odd_engine(world, evaluation_config(0, patch));
      const auto engine = odd_engine(world, evaluation_config(3, patch));
      EXPECT_EQ(engine->optimizer(), nullptr);
      for (int64_t pass = 0; pass < 3; ++pass) {
        const at::NoGradGuard no_grad;
        auto [inputs, targets] = odd_batch(4 * pass, 4);
        inputs = inputs.to(engine->module().parameters().front().scalar_type());
        EXPECT_TRUE(at::equal(engine->forward(inputs, targets), whole->forward(inputs, targets)));
        const zero::ParameterAccess access(engine->module().parameters(), zero::AccessMode::kEvaluation);
        EXPECT_TRUE(at::equal(odd_loss(engine->module(), pass), odd_loss(whole->module(), pass)));
      }
    }
  });
}

TEST_P(Stage3Evaluation, HoldsOneShardOfEachParameter) {
  run_ranks(GetParam(), [](comm::World& world) {
    const auto engine = odd_engine(world, evaluation_config(3));
    int64_t shards = 0;
    for (const at::Tensor& param : engine->module().parameters())
      shards += (param.numel() + world.size() - 1) / world.size();
    const auto memory = engine->memory();
    EXPECT_EQ(memory.parameters, 4 * shards);
    EXPECT_EQ(memory.total(), memory.parameters);
  });
}

TEST_P(Stage3Evaluation, CountsTheBuffersOfParametersOnADisk) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    Json config = evaluation_config(3);
    config["zero_optimization"]["offload_param"] = {
        {"device", "nvme"}, {"nvme_path", folder.string()}, {"max_in_cpu", 0}, {"buffer_size", 5000}};
    config["aio"] = {{"block_size", 4096}};
    const auto engine = initialize(std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(70, 70)),
                                   {.config = config, .world = world})
                            .engine;
    const auto memory = engine->memory();
    EXPECT_GE(memory.on_disk, 4 * 70 * 70 / world.size());
    EXPECT_GT(memory.swap_buffers, 0);
    EXPECT_LE(memory.swap_buffers, 5 * 4 * 5120) << "buffer_count, 5, of so many elements in whole pages";
    EXPECT_EQ(memory.total(), memory.swap_buffers + memory.parameters);
  });
}

TEST_P(Stage3Evaluation, LoadsCheckpointsOfOtherStages) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    for (const int stage : {0, 2, 3}) {
      const std::string saved = folder / std::to_string(stage);
      save_trained(world, stage, saved);
      const auto whole = odd_engine(world, evaluation_config(0), /*seed=*/5);
      whole->load_checkpoint(saved, {.load_module_only = true});
      const auto engine = odd_engine(world, evaluation_config(3), /*seed=*/7);
      const LoadResult loaded = engine->load_checkpoint(saved);
      EXPECT_FALSE(loaded.path.empty());
      EXPECT_EQ(engine->global_steps(), 2);
      const zero::ParameterAccess access(engine->module().parameters());
      EXPECT_TRUE(at::equal(odd_loss(engine->module(), 0), odd_loss(whole->module(), 0))) << stage;
    }
  });
}

TEST(Stage3EvaluationEngine, SavesTheWeightsInOneFile) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = odd_engine(world, evaluation_config(3));
    engine->save_16bit_model(folder.path());
    if (world.rank() != 0) return;
    const auto saved = checkpoint::read_torch_archive(folder / "pytorch_model.bin").as_dict();
    const OddNet model;
    for (const auto& item : model.named_parameters())
      EXPECT_TRUE(at::equal(saved.at(item.key()).as_tensor(), item.value())) << item.key();
  });
}

TEST(Stage3EvaluationEngine, RefusesToTrain) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = odd_engine(world, evaluation_config(3));
    const auto [inputs, targets] = odd_batch(0, 4);
    const at::Tensor loss = engine->forward(inputs, targets);
    const auto needs_optimizer = HasSubstr("needs an optimizer");
    EXPECT_THAT(error_of<UsageError>([&] { engine->backward(loss); }), needs_optimizer);
    EXPECT_THAT(error_of<UsageError>([&] { engine->step(); }), needs_optimizer);
    EXPECT_THAT(error_of<UsageError>([&] { engine->scale(loss); }), needs_optimizer);
    EXPECT_THAT(error_of<UsageError>([&] { engine->save_checkpoint("unused"); }),
                AllOf(HasSubstr("without an optimizer"), HasSubstr("save_16bit_model()")));
  });
}

TEST(Stage3EvaluationEngine, IsRefusedAtTheStagesThatPartitionNoParameters) {
  run_ranks(1, [](comm::World& world) {
    for (const int stage : {1, 2}) {
      EXPECT_THAT(error_of<ConfigError>([&] { odd_engine(world, evaluation_config(stage)); }),
                  AllOf(HasSubstr("zero_optimization.stage"), HasSubstr("needs an optimizer")));
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
