// Loads optimizer states of ZeRO stage 0 without names, as DeepSpeed's pipelines write them, at other numbers
// of stages.
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/pickle/value.h"

#include "tests/pipe/engine/resumed_pipeline.h"
#include "tests/pipe/engine/small_pipeline.h"
#include "tests/support/bf16_optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using checkpoint::Dict;
using checkpoint::List;
using checkpoint::Value;

using Change = std::function<void(Dict& state_dict)>;

void drop_names(Dict& state_dict) {
  List groups;
  for (const Value& group : state_dict.at("param_groups").as_sequence()) {
    Dict options = group.as_dict();
    drop(options, "param_names");
    groups.emplace_back(std::move(options));
  }
  state_dict.set("param_groups", std::move(groups));
}

// Turns our checkpoint into one like DeepSpeed's, without parameter names, manifest and marks. `change` is
// applied to the state_dict of each stage's optimizer.
void forget_names(const fs::path& folder, const Change& change = nullptr) {
  const fs::path tag = folder / "global_step3";
  fs::remove(tag / "manifest.json");
  for (const auto& file : fs::directory_iterator(tag)) {
    const std::string name = file.path().filename();
    if (name.starts_with("rng_states")) fs::remove(file.path());
    if (name.starts_with("layer_"))  // removes the mark of our saves
      checkpoint::write_torch_archive(file.path(), checkpoint::read_torch_archive(file.path()));
    if (!name.starts_with("mp_rank")) continue;
    Dict states = checkpoint::read_torch_archive(file.path()).as_dict();
    states.set("param_shapes", checkpoint::None());
    states.set("shared_params", checkpoint::None());
    Dict optimizer = states.at("optimizer").as_dict();
    Dict state_dict = optimizer.find("state") ? optimizer : optimizer.at("optimizer_state_dict").as_dict();
    drop_names(state_dict);
    if (change) change(state_dict);
    if (optimizer.find("state")) {
      optimizer = std::move(state_dict);
    } else {
      optimizer.set("optimizer_state_dict", std::move(state_dict));
    }
    states.set("optimizer", std::move(optimizer));
    checkpoint::write_torch_archive(file.path(), states);
  }
}

// Saves at some number of stages and resumes at 1 to 4.
void expect_resumes_anywhere(PipelineRun run, int saved_at, double tolerance = 1e-6) {
  const TemporaryFolder folder;
  run.num_stages = saved_at;
  const auto expected = train_and_save(run, saved_at, folder.path());
  forget_names(folder.path());
  for (const int stages : {1, 2, 3, 4}) {
    run.num_stages = stages;
    expect_equal(resume(run, stages, folder.path()), expected, tolerance,
                 message(run.optimizer.dump(), " in ", run.precision, ", ", saved_at, " stages to ", stages));
  }
}

TEST(UnnamedStates, ResumeAtOtherNumbersOfStages) {
  for (const bool is_tied : {false, true}) {
    for (const int saved_at : {1, 2, 4}) expect_resumes_anywhere({.is_tied = is_tied}, saved_at);
  }
}

TEST(UnnamedStates, AreThoseOfAnyOptimizer) {
  const Json lamb = {{"type", "Lamb"}, {"params", {{"lr", 0.01}}}};
  const Json adamw = {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}};
  const Json sgd = {{"type", "SGD"}, {"params", {{"lr", 0.05}}}};
  const Json momentum = {{"type", "SGD"}, {"params", {{"lr", 0.05}, {"momentum", 0.9}}}};
  for (const Json& optimizer : {lamb, adamw, sgd, momentum})
    expect_resumes_anywhere({.is_tied = true, .optimizer = optimizer}, 3);
}

TEST(UnnamedStates, MayBeFlatOrByParameterInSixteenBits) {
  const Json lamb = {{"type", "Lamb"}, {"params", {{"lr", 0.01}}}};
  expect_resumes_anywhere({.precision = "bf16"}, 2);
  expect_resumes_anywhere({.precision = "fp16"}, 2);
  expect_resumes_anywhere({.precision = "bf16", .optimizer = lamb}, 3);
  // One stage sums the gradients of a tied weight as they come; several sum each stage's gradients.
  expect_resumes_anywhere({.precision = "bf16", .is_tied = true}, 2, 1e-2);
}

TEST(UnnamedStates, ResumeWithDataParallelRanksAndPartitions) {
  const TemporaryFolder folder;
  PipelineRun run{.num_stages = 2, .is_tied = true};
  const auto expected = train_and_save(run, 4, folder.path());
  forget_names(folder.path());
  run.num_stages = 1;
  expect_equal(resume(run, 2, folder.path()), expected, 1e-6, "one stage of two ranks");
  run.zero_stage = 1;
  expect_equal(resume(run, 2, folder.path()), expected, 1e-6, "one stage of two ranks, ZeRO 1");
  run.zero_stage = 2;
  run.num_stages = 4;
  run.schedule = "zero_bubble";
  expect_equal(resume(run, 8, folder.path()), expected, 1e-6, "four stages of two ranks, ZeRO 2");
}

TEST(UnnamedStates, ResumeAtAsManyStagesWithAnotherCut) {
  const TemporaryFolder folder;
  PipelineRun run{.num_stages = 3};
  const auto expected = train_and_save(run, 3, folder.path());
  forget_names(folder.path());
  run.partition_method = "type:SmallBlock";
  expect_equal(resume(run, 3, folder.path()), expected, 1e-6, "another cut");
}

// Returns the error of a load at another number of stages.
std::string error_of_load(const fs::path& folder, const PipelineRun& run, bool is_frozen = false) {
  return run_ranks_collect(
             run.num_stages,
             [&](comm::World&) {
               const auto module = small_module(run);
               if (is_frozen) module->parameters().front().set_requires_grad(false);
               const auto engine = initialize(module, {.config = small_config(run)}).engine;
               const std::string text = error_of<CheckpointError>([&] { engine->load_checkpoint(folder); });
               EXPECT_EQ(engine->global_steps(), 0);
               const LoadResult loaded = engine->load_checkpoint(folder, {.load_optimizer_states = false});
               EXPECT_FALSE(loaded.path.empty());
               return text;
             })
      .front();
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
}

TEST(UnnamedStates, ThatFitNoCutNameTheWaysOut) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2}, 2, folder.path());
  forget_names(folder.path(), [](Dict& state_dict) {
    Dict group = state_dict.at("param_groups").as_sequence().front().as_dict();
    List params = group.at("params").as_sequence();
    params.pop_back();
    group.set("params", std::move(params));
    state_dict.set("param_groups", List{std::move(group)});
  });
  expect_parts(error_of_load(folder.path(), {.num_stages = 1}),
               {"global_step3", "does not name the parameters", "no cut of its 8 layers into 2 stages",
                "resume at the number of stages that wrote it, which is 2", "load_optimizer_states = false"});
}

TEST(UnnamedStates, SayWhichLayersFileIsMissing) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2}, 2, folder.path());
  forget_names(folder.path());
  fs::remove(folder.path() / "global_step3" / "layer_05-model_states.pt");
  run_ranks(1, [&](comm::World&) {
    const PipelineRun run{.num_stages = 1};
    const auto engine = initialize(small_module(run), {.config = small_config(run)}).engine;
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path()), "layer_05-model_states.pt",
                 "missing");
  });
}

TEST(UnnamedStates, InSeveralGroupsNameTheFileAndTheWaysOut) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2}, 2, folder.path());
  forget_names(folder.path(), [](Dict& state_dict) {
    Dict group = state_dict.at("param_groups").as_sequence().front().as_dict(), second = group;
    List params = group.at("params").as_sequence();
    second.set("params", List{params.back()});
    params.pop_back();
    group.set("params", std::move(params));
    state_dict.set("param_groups", List{std::move(group), std::move(second)});
  });
  expect_parts(
      error_of_load(folder.path(), {.num_stages = 3}),
      {"mp_rank_00_model_states.pt", "2 parameter groups", "which is 2", "load_optimizer_states = false"});
}

TEST(UnnamedStates, OfModelsWithFrozenParametersWantTheStagesThatWroteThem) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2}, 2, folder.path());
  forget_names(folder.path());
  expect_parts(error_of_load(folder.path(), {.num_stages = 1}, /*is_frozen=*/true),
               {"mp_rank_00_model_states.pt", "frozen parameters", "has 2 model files",
                "load_optimizer_states = false"});
}

TEST(UnnamedStates, BecomeNoUniversalCheckpoint) {
  const TemporaryFolder folder;
  train_and_save({.num_stages = 2}, 2, folder.path());
  forget_names(folder.path());
  EXPECT_TRUE(throws_error<CheckpointError>(
      [&] { checkpoint::convert_to_universal(folder.path() / "global_step3", folder.path() / "universal"); },
      {"does not say which parameters its optimizer has"}));
}

}  // namespace
}  // namespace deepspeed::testing
