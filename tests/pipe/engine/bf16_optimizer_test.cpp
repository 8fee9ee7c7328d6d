// Loads checkpoints of bf16 pipelines that DeepSpeed wrote with its BF16_Optimizer: at ZeRO stage 0, and at
// stage 1 with gradient sums in fp32.
#include "tests/support/bf16_optimizer.h"

#include <filesystem>
#include <utility>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"

#include "tests/pipe/engine/resumed_pipeline.h"
#include "tests/pipe/engine/small_pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;

const PipelineRun kRun{.num_stages = 2, .zero_stage = 1, .precision = "bf16"};
constexpr double kTolerance = 1e-6;

// Saves at 2 stages of 2 ranks in the other form, and returns the next losses.
std::vector<double> train_and_save_in_form(const fs::path& folder, bool has_zero) {
  const auto losses = train_and_save(kRun, 4, folder);
  make_bf16_optimizer_form(folder / "global_step3", has_zero);
  return losses;
}

TEST(FilesOfTheBf16Optimizer, ResumeAtAnyStages) {
  for (const bool has_zero : {false, true}) {
    const TemporaryFolder folder;
    const auto expected = train_and_save_in_form(folder.path(), has_zero);
    expect_equal(resume(kRun, 4, folder.path()), expected, kTolerance, "as it was saved");
    for (const auto& [stages, zero] : {std::pair{1, 0}, {4, 1}}) {
      PipelineRun run = kRun;
      run.num_stages = stages;
      run.zero_stage = zero;
      expect_equal(resume(run, 2 * stages, folder.path()), expected, kTolerance,
                   message(stages, " stages, ZeRO ", zero));
    }
  }
}

TEST(FilesOfTheBf16Optimizer, GiveMastersAndMomentsBitByBit) {
  const TemporaryFolder folder;
  train_and_save(kRun, 4, folder.path());
  const fs::path saved = folder.path() / "global_step3", loaded = folder.path() / "again" / "global_step3";
  fs::create_directories(loaded.parent_path());
  make_bf16_optimizer_form(saved, /*has_zero=*/false);
  PipelineRun run = kRun;
  run.num_stages = 1;
  run_ranks(1, [&](comm::World&) {
    const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
    engine->load_checkpoint(folder.path());
    engine->save_checkpoint(loaded.parent_path());
  });
  const checkpoint::Value model = checkpoint::read_torch_archive(loaded / "mp_rank_00_model_states.pt");
  const auto shapes = checkpoint::parse_model_states(model).states.param_shapes.value();
  auto before = checkpoint::OptimizerFiles::of_partitions(
      folder.path(), "global_step3", checkpoint::TagArchives(folder / "global_step3"), std::nullopt);
  before.join(checkpoint::OptimizerFiles::of_partitions(
      folder.path(), "global_step3", checkpoint::TagArchives(folder / "global_step3"), std::nullopt, 1));
  const auto after = checkpoint::OptimizerFiles::of_partitions(loaded.parent_path(), "global_step3",
                                                               checkpoint::TagArchives(loaded), shapes);
  EXPECT_EQ(after.groups()[0].step, before.groups()[0].step);
  for (const auto& [name, sizes] : shapes[0]) {
    for (const char* state : {checkpoint::kMasterState, "exp_avg", "exp_avg_sq"}) {
      const Interval all{0, after.numel(name, state)};
      ASSERT_GT(all.end, 0) << name;
      const at::Tensor found = at::zeros({all.end}), expected = at::ones({all.end});
      after.read(name, state, all, found);
      before.read(name, state, all, expected);
      EXPECT_TRUE(at::equal(found, expected)) << state << " of " << name;
    }
  }
}

TEST(FilesOfTheBf16Optimizer, BecomeUniversalWhereTheModelFileHasShapes) {
  const TemporaryFolder folder;
  const auto expected = train_and_save_in_form(folder.path(), /*has_zero=*/true);
  const fs::path saved = folder.path() / "global_step3", output = folder.path() / "universal";
  checkpoint::convert_to_universal(saved, output);
  expect_equal(resume(kRun, 4, folder.path(), /*is_universal=*/true), expected, kTolerance, "universal");
}

TEST(FilesOfTheBf16Optimizer, WithoutShapesBecomeNoUniversalCheckpoint) {
  const TemporaryFolder folder;
  train_and_save_in_form(folder.path(), /*has_zero=*/false);
  EXPECT_ERROR(CheckpointError,
               checkpoint::convert_to_universal(folder.path() / "global_step3", folder.path() / "universal"),
               "mp_rank_00_model_states.pt", "no 'param_shapes'", "save it again");
}

}  // namespace
}  // namespace deepspeed::testing
