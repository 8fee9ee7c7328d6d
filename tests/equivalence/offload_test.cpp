// An optimizer in host memory or on a disk trains as one on the device does, bit for bit; where the disk
// fails on one rank, all ranks say so.
#include <cerrno>
#include <cstring>
#include <fstream>

#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Many slices, and at stage 3 few parameters that stay whole.
Json sliced_at_stage(int stage, Json patch = Json::object()) {
  Json config = {{"zero_optimization",
                  {{"stage", stage},
                   {"reduce_bucket_size", 200},
                   {"sub_group_size", 20},
                   {"stage3_param_persistence_threshold", 13}}},
                 {"log_level", "error"}};
  config.merge_patch(patch);
  return config;
}

Json on_cpu(Json config) {
  config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  return config;
}

/// `variant`: which of the two pipelines are on.
Json on_disk(Json config, const fs::path& folder, int variant = 0) {
  config["zero_optimization"]["offload_optimizer"] = {{"device", "nvme"},
                                                      {"nvme_path", folder.string()},
                                                      {"pipeline_read", variant % 2 == 1},
                                                      {"pipeline_write", variant / 2 == 1}};
  config["aio"] = {{"block_size", 4096}, {"queue_depth", 4}};
  return config;
}

Json in_precision(const std::string& precision) {
  if (precision == "fp32") return Json::object();
  Json patch = {{precision, {{"enabled", true}}}};
  if (precision == "fp16") patch["fp16"]["initial_scale_power"] = 20;  // the first steps overflow
  return patch;
}

void expect_same(TrainingSpec spec, const Json& config, const TrainingResult& expected,
                 const std::string& what) {
  spec.config = config;
  const TrainingResult result = run_training(spec);
  EXPECT_EQ(result.weights, expected.weights) << what;
  EXPECT_EQ(result.losses, expected.losses) << what;
  EXPECT_EQ(result.norms, expected.norms) << what;
}

class Offload : public ::testing::TestWithParam<std::tuple<int, int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(RanksStagePrecision, Offload,
                         ::testing::Values(std::tuple(1, 1, "fp32"), std::tuple(1, 2, "bf16"),
                                           std::tuple(1, 3, "fp16"), std::tuple(2, 1, "fp16"),
                                           std::tuple(2, 1, "bf16"), std::tuple(2, 2, "fp32"),
                                           std::tuple(2, 2, "fp16"), std::tuple(2, 3, "fp32"),
                                           std::tuple(2, 3, "bf16"), std::tuple(3, 1, "bf16"),
                                           std::tuple(3, 2, "fp32"), std::tuple(3, 3, "fp16"),
                                           std::tuple(4, 1, "fp32"), std::tuple(4, 2, "bf16"),
                                           std::tuple(4, 3, "fp32"), std::tuple(4, 3, "bf16")));

TEST_P(Offload, IsBitEqualToNone) {
  const auto [world_size, stage, precision] = GetParam();
  const TemporaryFolder folder;
  TrainingSpec spec{.world_size = world_size, .steps = precision == std::string("fp16") ? 20 : 5};
  spec.config = sliced_at_stage(stage, in_precision(precision));
  const TrainingResult expected = run_training(spec);
  ASSERT_FALSE(expected.weights.empty());
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  const Json config = spec.config;
  expect_same(spec, on_cpu(config), expected, "cpu");
  const int variant = (world_size + stage) % 4;
  expect_same(spec, on_disk(config, folder.path(), variant), expected, message("nvme, pipelines ", variant));
}

TEST(OffloadOptions, WithClippingAndAccumulationAreBitEqual) {
  const TemporaryFolder folder;
  for (const int stage : {1, 2, 3}) {
    for (const char* precision : {"fp32", "fp16"}) {
      Json patch = in_precision(precision);
      patch["gradient_clipping"] = 0.05;
      TrainingSpec spec{
          .world_size = 2, .accumulation = 2, .steps = precision == std::string("fp16") ? 20 : 4};
      spec.config = sliced_at_stage(stage, patch);
      const TrainingResult expected = run_training(spec);
      ASSERT_FALSE(expected.norms.empty());
      EXPECT_GT(expected.norms.back(), 0.05) << "the norm must be clipped for this test to say anything";
      const Json config = spec.config;
      expect_same(spec, on_cpu(config), expected, message("cpu, stage ", stage));
      expect_same(spec, on_disk(config, folder.path(), 3), expected, message("nvme, stage ", stage));
    }
  }
}

TEST(OffloadOptions, OfOtherOptimizersAreBitEqual) {
  const TemporaryFolder folder;
  int stage = 0;
  for (const Json& variant : std::vector<Json>{
           {{"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.05}, {"momentum", 0.9}}}}}},
           {{"optimizer", {{"type", "RMSprop"}, {"params", {{"lr", 0.01}}}}}},
           {{"optimizer", {{"type", "Lion"}, {"params", {{"lr", 0.003}}}}}},
           {{"optimizer", {{"type", "Adagrad"}, {"params", {{"lr", 0.02}}}}}},
           {{"optimizer", {{"type", "Adam"}, {"params", {{"torch_adam", true}, {"amsgrad", true}}}}}},
           {{"bf16", {{"enabled", true}, {"immediate_grad_update", true}}}},
           // Moments that are rounded stochastically, by random numbers that no slice changes.
           {{"bf16",
             {{"enabled", true},
              {"bf16_master_weights_and_grads", true},
              {"bf16_optimizer_states", true}}}}}) {
    Json patch = variant;
    patch["zero_allow_untested_optimizer"] = true;
    TrainingSpec spec{.world_size = 2, .steps = 4, .config = sliced_at_stage(1 + stage++ % 3, patch)};
    const TrainingResult expected = run_training(spec);
    ASSERT_FALSE(expected.weights.empty());
    const Json config = spec.config;
    expect_same(spec, on_cpu(config), expected, message("cpu ", variant));
    expect_same(spec, on_disk(config, folder.path()), expected, message("nvme ", variant));
  }
}

TEST(OffloadOptions, MakeSixteenBitMastersPossible) {
  const TemporaryFolder folder;
  for (const std::string precision : {"fp16", "bf16"}) {
    Json patch = in_precision(precision);
    patch[precision][precision + "_master_weights_and_grads"] = true;
    TrainingSpec spec{.world_size = 2, .steps = 20, .config = on_cpu(sliced_at_stage(2, patch))};
    const TrainingResult expected = run_training(spec);
    ASSERT_FALSE(expected.losses.empty());
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    expect_same(spec, on_disk(sliced_at_stage(3, patch), folder.path()), expected, precision);
  }
}

// Masters and moments of 16 bits, of which a part lies in the host's memory or on a disk.
TEST(OffloadOptions, OfAPartOfSixteenBitStatesAreBitEqual) {
  const TemporaryFolder folder;
  const Json patch = {
      {"bf16",
       {{"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}}}};
  for (const int ranks : {1, 2}) {
    TrainingSpec spec{.world_size = ranks, .steps = 10, .config = sliced_at_stage(3, patch)};
    const TrainingResult expected = run_training(spec);
    ASSERT_FALSE(expected.losses.empty());
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const double ratio : {0.3, 0.5}) {
      for (Json config : {on_cpu(spec.config), on_disk(spec.config, folder.path(), 3)}) {
        config["zero_optimization"]["offload_optimizer"]["ratio"] = ratio;
        expect_same(spec, config, expected, config["zero_optimization"].dump());
      }
    }
  }
}

// --- what is where ---

TEST(OffloadMemory, OfSixteenBitStatesIsEightBytesAParameter) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    Json config = basic(on_cpu(sliced_at_stage(3)));
    config["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5;
    config["bf16"] = {
        {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
    const auto engine = make_engine(config, world);
    train_step(*engine, world.rank());
    const zero::MemoryBytes memory = engine->memory();
    const int64_t owned = engine->optimizer()->owned(0).numel();
    EXPECT_EQ(memory.parameters, 2 * owned);
    EXPECT_EQ(memory.gradients, 2 * owned);
    EXPECT_EQ(memory.master_weights, 0);
    EXPECT_EQ(memory.optimizer_states, 4 * owned);
    EXPECT_EQ(memory.total(), 8 * owned);
  });
}

TEST(OffloadMemory, IsOnTheDiskButForAFewSlices) {
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
    EXPECT_TRUE(fs::is_directory(folder / name));
    EXPECT_TRUE(fs::is_empty(folder / name)) << "a file that could outlive the process";
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

// --- checkpoints ---

/// Steps first to first + count - 1.
template <class Engine>
void train_steps(Engine& engine, const comm::World& world, int first, int count) {
  for (int step = first; step < first + count; ++step)
    train_step(engine, 4 * (world.size() * step + world.rank()));
}

TEST(OffloadCheckpoint, GoesOnWithAndWithoutOffloadBitForBit) {
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

TEST(OffloadCheckpoint, OfStatesOnADiskTakesNoMemoryOfTheirSize) {
  const TemporaryFolder swap, saved;
  for (const int stage : {2, 3}) {
    for (const char* precision : {"fp32", "bf16"}) {
      run_ranks(1, [&](comm::World& world) {
        Json config = basic(on_disk(sliced_at_stage(stage, in_precision(precision)), swap.path()));
        config["zero_optimization"]["sub_group_size"] = 65'536;
        config["zero_optimization"]["offload_param"] = {
            {"device", stage == 3 ? "nvme" : "none"}, {"nvme_path", swap.string()}, {"max_in_cpu", 0}};
        const auto engine =
            std::get<0>(initialize(std::make_shared<TwoMatrices>(), {.config = config, .world = world}));
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

// --- disks that fail ---

TEST(OffloadDisk, ThatCannotBeWrittenIsAnErrorOnEveryRank) {
  const TemporaryFolder folder;
  run_ranks(3, [&](comm::World& world) {
    const fs::path own = world.rank() == 1 ? fs::path("/proc/none") : folder.path();
    const std::string error =
        error_of<IoError>([&] { make_engine(basic(on_disk(sliced_at_stage(2), own)), world); });
    EXPECT_THAT(error, AllOf(HasSubstr("nvme_path"), HasSubstr("/proc/none/zero_stage_2/optimizer/rank1")));
    if (world.rank() != 1) {
      EXPECT_THAT(error, HasSubstr("offloading the optimizer failed on rank 1"));
    }
  });
}

class FullSwapDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    mounted_ = ::mount("tmpfs", disk_.string().c_str(), "tmpfs", 0, "size=2m") == 0;
    if (!mounted_) GTEST_SKIP() << "a tmpfs cannot be mounted: " << std::strerror(errno);
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk_.string().c_str(), MNT_DETACH);
  }
  void fill_up_to(uint64_t free_bytes) const {
    const uint64_t available = fs::space(disk_.path()).available;
    std::ofstream(disk_ / "filler", std::ios::binary) << std::string(available - free_bytes, 'x');
  }

  TemporaryFolder disk_, folder_;
  bool mounted_ = false;
};

TEST_F(FullSwapDisk, OfOneRankIsSaidOnEveryRankUntilACheckpointIsLoaded) {
  run_ranks(2, [&](comm::World& world) {
    const fs::path swap = world.rank() == 1 ? disk_.path() : folder_.path();
    for (const int stage : {2, 3}) {
      const Json config = basic(sliced_at_stage(stage, {{"bf16", {{"enabled", true}}}}));
      const std::string tag = message("stage", stage);
      const auto source = make_engine(config, world);
      train_step(*source, world.rank());
      source->save_checkpoint(folder_.string(), {.tag = tag});
      const auto engine = make_engine(on_disk(config, swap), world);
      if (world.rank() == 1) fill_up_to(30'000);  // the moments of the first slices have room
      const std::string error = error_of<IoError>([&] { train_step(*engine, world.rank()); });
      EXPECT_THAT(error, AllOf(HasSubstr("nvme_path"), HasSubstr("has no room"))) << stage;
      if (world.rank() == 0) {
        EXPECT_THAT(error, HasSubstr("the optimizer's step failed on rank 1"));
      }
      const at::Tensor param = engine->module().named_parameters()["first.weight"];
      EXPECT_THAT(error_of<UsageError>([&] { engine->step(); }),
                  AllOf(HasSubstr("applied in part"), HasSubstr("load a checkpoint")));
      EXPECT_THAT(error_of<UsageError>([&] { safe_get_full_fp32_param(*engine, param); }),
                  HasSubstr("applied in part"));
      if (world.rank() == 1) fs::remove(disk_ / "filler");
      engine->zero_grad();
      engine->load_checkpoint(folder_.string(), {.tag = tag});
      for (int64_t first : {10, 20}) EXPECT_EQ(train_step(*engine, first), train_step(*source, first));
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
