// Checkpoints of a pipeline have one file per layer, and any number of stages can resume from them.
#include <filesystem>

#include <gtest/gtest.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"

#include "tests/pipe/engine/resumed_pipeline.h"
#include "tests/pipe/engine/small_pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;

TEST(PipelineCheckpoint, ResumesAtOtherNumbersOfStages) {
  for (const int zero_stage : {0, 1, 2}) {
    const TemporaryFolder folder;
    PipelineRun run{.num_stages = 4, .zero_stage = zero_stage, .is_tied = true};
    const auto expected = train_and_save(run, 4, folder.path());
    for (const int stages : {4, 3, 2, 1}) {
      run.num_stages = stages;
      expect_equal(resume(run, stages, folder.path()), expected, stages == 4 ? 0.0 : 1e-6,
                   message("ZeRO ", zero_stage, ", ", stages, " stages"));
    }
  }
}

TEST(PipelineCheckpoint, ResumesAtFourStagesFromFewer) {
  for (const int stages : {1, 2, 3}) {
    const TemporaryFolder folder;
    PipelineRun run{.num_stages = stages, .zero_stage = 1, .is_tied = true};
    const auto expected = train_and_save(run, stages, folder.path());
    run.num_stages = 4;
    expect_equal(resume(run, 4, folder.path()), expected, 1e-6, message("from ", stages, " stages"));
  }
}

TEST(PipelineCheckpoint, ResumesWithAnotherScheduleRanksAndZeroStage) {
  const TemporaryFolder folder;
  const PipelineRun saved{.num_stages = 2, .zero_stage = 1, .is_tied = true};
  const auto expected = train_and_save(saved, 4, folder.path());
  PipelineRun run = saved;
  run.zero_stage = 2;
  run.schedule = "zero_bubble";
  expect_equal(resume(run, 4, folder.path()), expected, 1e-6, "zero_bubble at stage 2");
  run = saved;
  run.model_chunks = 2;
  run.schedule = "interleaved";
  expect_equal(resume(run, 4, folder.path()), expected, 1e-6, "interleaved chunks");
  run = saved;
  run.zero_stage = 0;
  run.num_stages = 1;
  expect_equal(resume(run, 2, folder.path()), expected, 1e-6, "one stage, two data-parallel ranks");
}

// No rank opens files of both saves.
TEST(PipelineCheckpoint, WhoseStagesAreOfTwoSavesIsRefused) {
  const TemporaryFolder folder, other;
  const PipelineRun run{.num_stages = 2, .zero_stage = 0};
  train_and_save(run, 2, folder.path());
  train_and_save(run, 2, other.path());
  fs::remove(folder / "global_step3/manifest.json");
  for (const auto& entry : fs::directory_iterator(other / "global_step3")) {
    const std::string name = entry.path().filename().string();
    const bool is_of_second = name.starts_with("mp_rank_01") || name.starts_with("rng_states_rank_1") ||
                              (name.starts_with("layer_") && name > "layer_03");
    if (is_of_second)
      fs::copy_file(entry.path(), folder / "global_step3" / name, fs::copy_options::overwrite_existing);
  }
  run_ranks(2, [&](comm::World&) {
    const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
    const std::string error = error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path()); });
    EXPECT_NE(error.find(" save"), std::string::npos) << error;
    EXPECT_EQ(engine->global_steps(), 0);
  });
}

TEST(PipelineCheckpoint, WithoutOptimizerFilesStillGivesItsWeights) {
  for (const int zero_stage : {1, 2}) {
    const TemporaryFolder folder;
    const PipelineRun run{.num_stages = 2, .zero_stage = zero_stage};
    train_and_save(run, 2, folder.path());
    for (const auto& entry : fs::directory_iterator(folder / "global_step3"))
      if (entry.path().string().ends_with("_optim_states.pt")) fs::remove(entry.path());
    run_ranks(2, [&](comm::World&) {
      for (const bool module_only : {false, true}) {
        const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
        const at::Tensor weight = engine->module().parameters().front();
        const at::Tensor before = weight.detach().clone();
        const LoadOptions options{.load_optimizer_states = module_only, .load_module_only = module_only};
        EXPECT_FALSE(engine->load_checkpoint(folder.path(), options).path.empty());
        EXPECT_FALSE(weight.equal(before)) << "ZeRO " << zero_stage;
        EXPECT_EQ(engine->global_steps(), module_only ? 0 : kSavedAt);
        EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path()), "_optim_states.pt");
      }
    });
  }
}

TEST(PipelineCheckpoint, HasDeepSpeedsFiles) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2, .zero_stage = 1, .is_tied = true}, 4, folder.path());
  const fs::path tag = folder.path() / "global_step3";
  for (const char* name :
       {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt", "layer_00-model_states.pt",
        "layer_01-model_states.pt", "layer_06-model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_01_optim_states.pt"}) {
    EXPECT_TRUE(fs::exists(tag / name)) << name;
  }
  EXPECT_FALSE(fs::exists(tag / "layer_07-model_states.pt")) << "the tied layer with a forward_fn has none";
}

TEST(PipelineCheckpoint, BecomesFp32WeightsAndAUniversalCheckpoint) {
  for (const int zero_stage : {0, 1}) {
    const TemporaryFolder folder;
    PipelineRun run{.num_stages = 2, .zero_stage = zero_stage, .is_tied = true};
    const auto expected = train_and_save(run, 2, folder.path());
    const checkpoint::Fp32Source source(folder.path(), "global_step3", checkpoint::Fp32Source::Options{});
    const auto weights = by_name(source.weights());
    EXPECT_EQ(weights.at("tied_modules.words.weight").sizes(), at::IntArrayRef({11, 12}));
    EXPECT_EQ(weights.at("3.up.weight").sizes(), at::IntArrayRef({24, 12}));
    EXPECT_EQ(weights.at("6.down.bias").sizes(), at::IntArrayRef({12}));
    checkpoint::convert_to_universal(folder.path() / "global_step3", folder.path() / "universal");
    for (const int stages : {1, 2, 4}) {
      run.num_stages = stages;
      expect_equal(resume(run, stages, folder.path(), true), expected, 1e-6,
                   message("universal of ZeRO ", zero_stage, ", ", stages, " stages"));
    }
  }
}

TEST(PipelineCheckpoint, SaysWhatDoesNotFit) {
  const TemporaryFolder folder;
  const PipelineRun run{.num_stages = 2};
  train_and_save(run, 2, folder.path());
  fs::remove(folder.path() / "global_step3" / "layer_05-model_states.pt");
  run_ranks(2, [&](comm::World&) {
    const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
    EXPECT_TRUE(throws_error<CheckpointError>([&] { engine->load_checkpoint(folder.path()); },
                                              {"layer_05-model_states.pt"}));
    EXPECT_EQ(engine->global_steps(), 0);
    EXPECT_TRUE(
        throws_error<NotSupportedError>([&] { engine->save_16bit_model(folder.path()); }, {"zero_to_fp32"}));
  });
}

TEST(PipelineCheckpoint, LayersThatTheModelDoesNotHaveAreNotLeftOutUnlessThatIsAsked) {
  const TemporaryFolder folder;
  const PipelineRun run{.num_stages = 2};
  train_and_save(run, 2, folder.path());
  run_ranks(2, [&](comm::World&) {
    std::vector<LayerSpec> fewer = small_layers(run);
    fewer.pop_back();
    const auto module = std::make_shared<PipelineModule>(
        fewer, PipelineModuleOptions{.num_stages = 2, .loss_fn = small_loss, .partition_method = "uniform"});
    const auto engine = initialize(module, {.config = small_config(run)}).engine;
    EXPECT_TRUE(throws_error<CheckpointError>(
        [&] { engine->load_checkpoint(folder.path()); },
        {"has layer " + std::to_string(fewer.size()), "the model has", "load_module_strict"}));
    const LoadResult loaded =
        engine->load_checkpoint(folder.path(), {.load_module_strict = false, .load_module_only = true});
    EXPECT_FALSE(loaded.path.empty());
  });
}

TEST(PipelineCheckpoint, LayersAreSavedAndLoadedAlone) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const PipelineRun run{.num_stages = 2, .is_tied = true};
    const auto module = small_module(run);
    module->save_state_dict(folder.path());
    world.group().barrier();
    const auto other = small_module({.num_stages = 2, .is_tied = true});
    for (const at::Tensor& param : other->parameters()) param.detach().zero_();
    other->load_state_dir(folder.path());
    // Before an engine makes them equal, each stage's copy of a tied weight has its own initial values.
    const at::Tensor words = module->parameters()[0].detach().clone();
    world.group().broadcast(words, 0);
    EXPECT_TRUE(other->parameters()[0].equal(words));
    for (size_t i = 1; i < module->parameters().size(); ++i)
      EXPECT_TRUE(other->parameters()[i].equal(module->parameters()[i]));
    EXPECT_EQ(module->ckpt_prefix("here", "tag"),
              world.rank() == 0 ? "here/tag/module-pipe_00" : "here/tag/module-pipe_01");
    EXPECT_EQ(module->ckpt_layer_path("here", 1),
              world.rank() == 0 ? "here/layer_01-model_states.pt" : "here/layer_05-model_states.pt");
  });
}

}  // namespace
}  // namespace deepspeed::testing
