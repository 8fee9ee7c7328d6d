// Where the states of an offloaded optimizer are, how they are read and written, and how checkpoints carry
// them.
#include <filesystem>

#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/equivalence/offload/offload_configs.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;

TEST(OffloadMemory, IsEightBytesAParameterWithSixteenBitStates) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    Json config = basic(on_cpu(sliced_at_stage(3)));
    config["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5;
    config["bf16"] = {
        {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
    const auto engine = make_engine(config, world);
    train_step(*engine, world.rank());
    const zero::MemoryBytes memory = engine->memory();
    const int64_t owned = engine->optimizer()->state().owned(0).numel();
    EXPECT_EQ(memory.parameters, 2 * owned);
    EXPECT_EQ(memory.gradients, 2 * owned);
    EXPECT_EQ(memory.master_weights, 0);
    EXPECT_EQ(memory.optimizer_states, 4 * owned);
    EXPECT_EQ(memory.total(), 8 * owned);
  });
}

TEST(OffloadMemory, IsOnTheDiskExceptForAFewSlices) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json config = basic(sliced_at_stage(3, {{"bf16", {{"enabled", true}}}}));
    const auto plain = make_engine(config, world), host = make_engine(on_cpu(config), world),
               disk = make_engine(on_disk(config, folder.path()), world);
    Json half = on_disk(config, folder.path());
    half["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5;
    const auto part = make_engine(half, world);
    for (const auto& engine : {plain, host, disk, part}) {
      for (int step = 0; step < 2; ++step) train_step(*engine, 4 * (2 * step + world.rank()));
    }
    const zero::MemoryBytes kept = plain->memory();
    EXPECT_EQ(host->memory().master_weights, kept.master_weights);
    EXPECT_EQ(host->memory().optimizer_states, kept.optimizer_states);
    EXPECT_EQ(kept.on_disk, 0);
    EXPECT_EQ(disk->memory().master_weights, 0);
    EXPECT_EQ(disk->memory().optimizer_states, 0);
    EXPECT_GE(disk->memory().on_disk, kept.master_weights + kept.optimizer_states);
    EXPECT_GT(disk->memory().swap_buffers, 0);
    EXPECT_LE(4 * disk->memory().swap_buffers, disk->memory().on_disk);
    const int64_t in_part = part->memory().master_weights;
    EXPECT_GT(in_part, 0);
    EXPECT_LT(in_part, kept.master_weights);
    EXPECT_LT(part->memory().on_disk, disk->memory().on_disk);
    const std::string name = message("zero_stage_3/optimizer/rank", world.rank());
    EXPECT_TRUE(std::filesystem::is_directory(folder / name));
    EXPECT_TRUE(std::filesystem::is_empty(folder / name)) << "a file that could outlive the process";
  });
}

TEST(OffloadState, IsReadAndWrittenByParameter) {
  const TemporaryFolder folder;
  run_ranks(3, [&](comm::World& world) {
    for (const int stage : {1, 2, 3}) {
      const Json config = basic(sliced_at_stage(stage, {{"bf16", {{"enabled", true}}}}));
      const auto plain = make_engine(config, world),
                 disk = make_engine(on_disk(config, folder.path()), world);
      const auto param_of = [](auto& engine) { return engine->module().named_parameters()["shared.weight"]; };
      const at::Tensor here = param_of(plain), there = param_of(disk);
      EXPECT_FALSE(safe_get_full_optimizer_state(*disk, there, "exp_avg").defined());
      for (int step = 0; step < 3; ++step) {
        for (const auto& engine : {plain, disk}) train_step(*engine, 4 * (3 * step + world.rank()));
        EXPECT_TRUE(safe_get_full_fp32_param(*disk, there).equal(safe_get_full_fp32_param(*plain, here)));
        for (const char* key : {"exp_avg", "exp_avg_sq"}) {
          EXPECT_TRUE(safe_get_full_optimizer_state(*disk, there, key)
                          .equal(safe_get_full_optimizer_state(*plain, here, key)))
              << key;
        }
        const at::Tensor values = safe_get_full_fp32_param(*plain, here).mul(1.5);
        safe_set_full_fp32_param(*plain, here, values);
        safe_set_full_fp32_param(*disk, there, values);
        safe_set_full_optimizer_state(*plain, here, values, "exp_avg");
        safe_set_full_optimizer_state(*disk, there, values, "exp_avg");
        EXPECT_TRUE(safe_get_full_fp32_param(*disk, there).equal(values));
        EXPECT_TRUE(safe_get_full_optimizer_state(*disk, there, "exp_avg").equal(values));
      }
      EXPECT_THAT(error_of<UsageError>([&] { safe_get_full_optimizer_state(*disk, there, "momentum"); }),
                  HasSubstr("no state 'momentum'; it has 'exp_avg', 'exp_avg_sq'"));
      if (stage != 3) continue;
      const at::Tensor local = safe_get_local_fp32_param(*plain, here);
      EXPECT_TRUE(safe_get_local_fp32_param(*disk, there).equal(local));
      safe_set_local_optimizer_state(*disk, there, local, "exp_avg_sq");
      EXPECT_TRUE(safe_get_local_optimizer_state(*disk, there, "exp_avg_sq").equal(local));
    }
  });
}

/// Steps first to first + count - 1.
template <class Engine>
void train_steps(Engine& engine, const comm::World& world, int first, int count) {
  for (int step = first; step < first + count; ++step)
    train_step(engine, 4 * (world.size() * step + world.rank()));
}

TEST(OffloadCheckpoint, ResumesWithAndWithoutOffloadBitForBit) {
  const TemporaryFolder swap;
  for (const int stage : {1, 2, 3}) {
    for (const char* precision : {"fp32", "bf16"}) {
      run_ranks(2, [&](comm::World& world) {
        const Json plain = basic(sliced_at_stage(stage, in_precision(precision)));
        const std::vector<Json> configs = {plain, on_cpu(plain), on_disk(plain, swap.path(), 3)};
        const auto straight = make_engine(plain, world);
        train_steps(*straight, world, 0, 5);
        for (const auto& [from, to] : {std::pair(0, 2), {2, 0}, {2, 1}, {1, 2}, {2, 2}}) {
          const TemporaryFolder own;
          const std::string folder = world.group().broadcast_text(own.string(), 0);
          const auto source = make_engine(configs[from], world), target = make_engine(configs[to], world);
          train_steps(*source, world, 0, 3);
          source->save_checkpoint(folder);
          train_steps(*target, world, 50, from == to ? 1 : 0);  // with states, and without
          target->load_checkpoint(folder);
          train_steps(*target, world, 3, 2);
          for (const char* name : {"first.weight", "last.bias", "gain"}) {
            const at::Tensor expected =
                safe_get_full_fp32_param(*straight, straight->module().named_parameters()[name]);
            EXPECT_TRUE(
                safe_get_full_fp32_param(*target, target->module().named_parameters()[name]).equal(expected))
                << name << " stage " << stage << " " << precision << " from " << from << " to " << to;
          }
          world.group().barrier();
        }
      });
    }
  }
}

/// Two matrices, whose states are large beside what passes between disk and file.
class TwoMatrices : public torch::nn::Module {
 public:
  TwoMatrices() {
    for (const char* name : {"one", "two"})
      layers_.push_back(
          register_module(name, torch::nn::Linear(torch::nn::LinearOptions(512, 512).bias(false))));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers_) x = layer->forward(x).tanh();
    return x.square().mean();
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

TEST(OffloadCheckpoint, TakesNoMemoryOfTheirSizeForStatesOnADisk) {
  const TemporaryFolder swap, saved;
  for (const int stage : {2, 3}) {
    for (const char* precision : {"fp32", "bf16"}) {
      run_ranks(1, [&](comm::World& world) {
        Json config = basic(on_disk(sliced_at_stage(stage, in_precision(precision)), swap.path()));
        config["zero_optimization"]["sub_group_size"] = 65'536;
        config["zero_optimization"]["offload_param"] = {
            {"device", stage == 3 ? "nvme" : "none"}, {"nvme_path", swap.string()}, {"max_in_cpu", 0}};
        const auto engine =
            initialize(std::make_shared<TwoMatrices>(), {.config = config, .world = world}).engine;
        const auto type = precision == std::string("fp32") ? at::kFloat : at::kBFloat16;
        const auto step = [&] {
          const at::Tensor loss = engine->forward(at::ones({1, 512}).to(type));
          engine->backward(loss);
          engine->step();
          return loss.item<float>();
        };
        step();
        const std::string folder = saved / message(stage, precision);
        {
          const AllocationCounter counter;
          engine->save_checkpoint(folder);
          EXPECT_LT(8 * counter.peak_bytes(), engine->memory().on_disk) << stage << precision;
        }
        const float next = step();
        engine->load_checkpoint(folder);
        EXPECT_EQ(step(), next) << stage << precision;
      });
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
