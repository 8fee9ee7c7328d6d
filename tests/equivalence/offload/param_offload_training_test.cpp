// Parameters of stage 3 in the host's memory or on a disk are trained as those on the device, bit for bit;
// where the disk fails on one rank, all ranks say so.
#include <csignal>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Gpt = std::shared_ptr<DeepSpeedEngine<TinyGPT>>;

Json plain_config(const std::string& precision, Json patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"log_level", "error"},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization",
                  {{"stage", 3}, {"sub_group_size", 5000}, {"stage3_param_persistence_threshold", 100}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  if (precision == "fp16") config["fp16"]["initial_scale_power"] = 26;  // the first steps overflow
  config.merge_patch(patch);
  return config;
}

/// Parameters in `home`, the optimizer in `optimizer`. On the disk are the larger matrices; there are fewer
/// buffers than a step writes.
Json offloaded(Json config, const std::string& home, const std::string& optimizer,
               const std::string& folder) {
  Json& zero = config["zero_optimization"];
  zero["offload_param"] = {{"device", home}};
  if (optimizer != "none") zero["offload_optimizer"] = {{"device", optimizer}};
  if (optimizer == "nvme") zero["offload_optimizer"]["nvme_path"] = folder;
  if (home == "nvme") {
    zero["offload_param"].update(
        {{"nvme_path", folder}, {"max_in_cpu", 0}, {"buffer_count", 3}, {"buffer_size", 70'000}});
  }
  config["aio"] = {{"block_size", 4096}};
  return config;
}

Gpt make_gpt(comm::World& world, const Json& config, uint64_t seed = 3) {
  torch::manual_seed(seed);
  auto model = std::make_shared<TinyGPT>(
      TinyGPTConfig{.vocabulary = 128, .context = 8, .width = 64, .layers = 2, .heads = 4});
  return initialize(std::move(model), {.config = config, .world = world}).engine;
}

/// Losses of micro steps first to first + count - 1.
std::vector<float> train(const Gpt& engine, const comm::World& world, int first, int count) {
  std::vector<float> losses;
  for (int step = first; step < first + count; ++step) {
    const at::Tensor tokens =
        at::arange(18, at::kLong).mul(7 + 3 * step + 5 * world.rank()).add(step).remainder(128).view({2, 9});
    const at::Tensor loss = engine->forward(tokens.narrow(1, 0, 8), tokens.narrow(1, 1, 8));
    engine->backward(loss);
    engine->step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

std::vector<at::Tensor> weights_of(const Gpt& engine) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& param : engine->module().parameters())
    weights.push_back(safe_get_full_fp32_param(*engine, param));
  return weights;
}

void expect_same_weights(const Gpt& engine, const Gpt& expected, const std::string& what) {
  const auto here = weights_of(engine), there = weights_of(expected);
  ASSERT_EQ(here.size(), there.size());
  for (size_t index = 0; index < here.size(); ++index)
    EXPECT_TRUE(at::equal(here[index], there[index])) << what << ", parameter " << index;
  // And what operators see is what was updated.
  const zero::GatheredParameters first(engine->module().parameters()),
      second(expected->module().parameters());
  const auto seen = engine->module().parameters(), seen_there = expected->module().parameters();
  for (size_t index = 0; index < seen.size(); ++index)
    EXPECT_TRUE(at::equal(seen[index], seen_there[index])) << what << ", whole parameter " << index;
}

void expect_same_training(comm::World& world, const Json& plain, const std::vector<Json>& variants,
                          int steps = 4) {
  const auto expected = make_gpt(world, plain);
  const std::vector<float> losses = train(expected, world, 0, steps);
  EXPECT_LT(losses.back(), losses.front());
  for (const Json& config : variants) {
    const auto engine = make_gpt(world, config);
    EXPECT_EQ(train(engine, world, 0, steps), losses) << config;
    expect_same_weights(engine, expected, config.dump());
  }
}

class TrainedParamOffload : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(RanksPrecision, TrainedParamOffload,
                         ::testing::Values(std::tuple(1, "fp32"), std::tuple(1, "bf16"),
                                           std::tuple(2, "fp32"), std::tuple(2, "fp16"),
                                           std::tuple(3, "bf16"), std::tuple(4, "fp32")));

TEST_P(TrainedParamOffload, IsBitEqualToNone) {
  const auto [ranks, precision] = GetParam();
  const TemporaryFolder folder;
  const Json plain = plain_config(precision);
  std::vector<Json> variants;
  for (const char* home : {"cpu", "nvme"}) {
    for (const char* optimizer : {"none", "cpu", "nvme"})
      variants.push_back(offloaded(plain, home, optimizer, folder.string()));
  }
  const int steps = precision == std::string("fp16") ? 16 : 4;
  run_ranks(ranks, [&](comm::World& world) { expect_same_training(world, plain, variants, steps); });
}

TEST(TrainedParamOffloadOptions, AreBitEqualWithClippingAndAccumulation) {
  const TemporaryFolder folder;
  const Json plain = plain_config("bf16", {{"gradient_clipping", 0.05}, {"gradient_accumulation_steps", 2}});
  run_ranks(2, [&](comm::World& world) {
    expect_same_training(
        world, plain,
        {offloaded(plain, "nvme", "nvme", folder.string()), offloaded(plain, "nvme", "cpu", folder.string()),
         offloaded(plain, "cpu", "nvme", folder.string())},
        6);
  });
}

TEST(TrainedParamOffloadOptions, AreBitEqualUnderAutocast) {
  const TemporaryFolder folder;
  for (const char* dtype : {"bf16", "fp16"}) {
    const Json plain = plain_config("fp32", {{"torch_autocast", {{"enabled", true}, {"dtype", dtype}}}});
    run_ranks(2, [&](comm::World& world) {
      expect_same_training(world, plain,
                           {offloaded(plain, "nvme", "nvme", folder.string()),
                            offloaded(plain, "cpu", "cpu", folder.string())});
    });
  }
}

/// In turns, with evaluation between the steps.
TEST(TrainedParamOffloadOptions, AreBitEqualWithTwoEnginesInOneProcess) {
  const TemporaryFolder folder;
  const Json config = plain_config("bf16");
  run_ranks(2, [&](comm::World& world) {
    const auto plain = make_gpt(world, config);
    const auto one = make_gpt(world, offloaded(config, "nvme", "nvme", folder.string()));
    const auto other = make_gpt(world, offloaded(config, "cpu", "nvme", folder.string()));
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> losses = train(plain, world, step, 1);
      EXPECT_EQ(train(one, world, step, 1), losses) << step;
      EXPECT_EQ(train(other, world, step, 1), losses) << step;
      const at::NoGradGuard no_grad;
      const at::Tensor tokens = at::arange(18, at::kLong).add(step).view({2, 9});
      std::vector<float> held_out;
      for (const Gpt& engine : {plain, one, other}) {
        engine->eval();
        held_out.push_back(engine->forward(tokens.narrow(1, 0, 8), tokens.narrow(1, 1, 8)).item<float>());
        engine->train();
      }
      EXPECT_EQ(held_out, std::vector<float>(3, held_out.front())) << step;
    }
  });
}

/// The 16-bit weights are read from the disk for the step, and written back.
TEST(TrainedParamOffloadOptions, AreBitEqualWithSixteenBitMasters) {
  const TemporaryFolder folder;
  const Json bf16 = {{"bf16", {{"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}}}};
  const Json plain = plain_config("bf16", bf16);
  run_ranks(2, [&](comm::World& world) {
    expect_same_training(
        world, plain,
        {offloaded(plain, "nvme", "none", folder.string()), offloaded(plain, "nvme", "cpu", folder.string()),
         offloaded(plain, "nvme", "nvme", folder.string())});
  });
}

TEST(TrainedParamsOnDisk, AreReadAndWrittenByParameter) {
  const TemporaryFolder folder;
  for (const char* precision : {"fp32", "bf16"}) {
    run_ranks(2, [&](comm::World& world) {
      const Json config = plain_config(precision);
      const auto plain = make_gpt(world, config);
      const auto disk = make_gpt(world, offloaded(config, "nvme", "nvme", folder.string()));
      for (int step = 0; step < 3; ++step) {
        EXPECT_EQ(train(disk, world, step, 1), train(plain, world, step, 1)) << precision << step;
        for (const Gpt& engine : {plain, disk}) {
          const auto params = engine->module().parameters();
          safe_set_full_fp32_param(*engine, params[0],
                                   safe_get_full_fp32_param(*engine, params[0]).mul(1.01));
          safe_set_local_fp32_param(*engine, params[2],
                                    safe_get_local_fp32_param(*engine, params[2]).mul(0.99));
          const zero::GatheredParameters gathered(params, 0);
          const at::NoGradGuard no_grad;
          if (world.rank() == 0) params[4].mul_(1.5);
        }
      }
      expect_same_weights(disk, plain, precision);
    });
  }
}

TEST(TrainedParamsOnDisk, ResumeFromCheckpointsWithAndWithoutOffload) {
  const TemporaryFolder swap;
  for (const char* precision : {"fp32", "bf16"}) {
    run_ranks(2, [&](comm::World& world) {
      const Json plain = plain_config(precision);
      const std::vector<Json> configs = {plain, offloaded(plain, "nvme", "nvme", swap.string()),
                                         offloaded(plain, "cpu", "cpu", swap.string())};
      const auto straight = make_gpt(world, plain);
      train(straight, world, 0, 5);
      for (const auto& [from, to] : {std::pair(0, 1), {1, 0}, {1, 2}, {1, 1}}) {
        const TemporaryFolder own;
        const std::string folder = world.group().broadcast_text(own.string(), 0);
        const auto source = make_gpt(world, configs[from]), target = make_gpt(world, configs[to], 5);
        train(source, world, 0, 3);
        source->save_checkpoint(folder);
        train(target, world, 50, 1);
        target->load_checkpoint(folder);
        train(target, world, 3, 2);
        expect_same_weights(target, straight, message(precision, " from ", from, " to ", to));
        world.group().barrier();
      }
    });
  }
}

TEST(TrainedParamsOnDisk, AreNotInMemory) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json plain = plain_config("bf16");
    const auto here = make_gpt(world, plain);
    const auto disk = make_gpt(world, offloaded(plain, "nvme", "nvme", folder.string()));
    for (const Gpt& engine : {here, disk}) train(engine, world, 0, 2);
    const zero::MemoryBytes in_memory = here->memory(), on_disk = disk->memory();
    EXPECT_LT(10 * on_disk.parameters, in_memory.parameters) << "small ones alone";
    EXPECT_EQ(on_disk.master_weights + on_disk.optimizer_states, 0);
    EXPECT_GE(on_disk.on_disk + on_disk.parameters, in_memory.total() - in_memory.gradients);
  });
}

/// Files of this process cannot grow, or be written, beyond a size.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    former_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{bytes, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, former_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit former_{};
  void (*former_handler_)(int) = nullptr;
};

TEST(TrainedParamsOnDisk, ReportAFailedDiskOnEveryRankUntilACheckpointIsLoaded) {
  const TemporaryFolder swap, saved;
  run_ranks(2, [&](comm::World& world) {
    const Json plain = plain_config("bf16");
    const auto source = make_gpt(world, plain);
    train(source, world, 0, 1);
    source->save_checkpoint(saved.string());
    const auto engine = make_gpt(world, offloaded(plain, "nvme", "cpu", swap.string()));
    train(engine, world, 0, 1);
    std::string error;
    {
      const FileSizeLimit limit(world.rank() == 1 ? 4096 : RLIM_INFINITY);
      error = error_of<IoError>([&] { train(engine, world, 1, 1); });
    }
    EXPECT_THAT(error, AllOf(HasSubstr("cannot write the shard of parameter"), HasSubstr("nvme_path")));
    if (world.rank() == 0) {
      EXPECT_THAT(error, HasSubstr("the optimizer's step failed on rank 1"));
    }
    EXPECT_THAT(error_of<UsageError>([&] { engine->step(); }),
                AllOf(HasSubstr("applied in part"), HasSubstr("load a checkpoint")));
    engine->zero_grad();
    engine->load_checkpoint(saved.string());
    EXPECT_EQ(train(engine, world, 4, 3), train(source, world, 4, 3));
    expect_same_weights(engine, source, "after the checkpoint");
  });
}

}  // namespace
}  // namespace deepspeed::testing
