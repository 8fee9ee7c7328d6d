// An optimizer in host memory or on a disk trains as one on the device does, bit for bit; where the disk
// fails on one rank, all ranks say so.
#include <cerrno>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"

#include "tests/engine/make_engine.h"
#include "tests/equivalence/offload/offload_configs.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(OffloadOptions, AreBitEqualWithClippingAndAccumulation) {
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

TEST(OffloadOptions, AreBitEqualWithOtherOptimizers) {
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
TEST(OffloadOptions, AreBitEqualWithAPartOfSixteenBitStates) {
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

TEST(OffloadDisk, FailsOnEveryRankIfItCannotBeWritten) {
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

TEST_F(FullSwapDisk, IsReportedOnEveryRankUntilACheckpointIsLoaded) {
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
