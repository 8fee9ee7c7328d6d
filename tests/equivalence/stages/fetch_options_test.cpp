// The options of stage 3 for how parameters come together: the same bits, by other collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/counted_world.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

const Json kByAllReduce = {{"stage3_use_all_reduce_for_fetch_params", true}};
const Json kSequential = {{"stage3_allgather_sequential", true}};
const Json kBoth = {{"stage3_use_all_reduce_for_fetch_params", true}, {"stage3_allgather_sequential", true}};

Json fetch_config(int stage, const Json& options, const Json& patch) {
  Json config = {{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 200}}}};
  if (stage == 3) {
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
    config["zero_optimization"].update(options);
  }
  config.merge_patch(patch);
  return config;
}

TEST(FetchOptions, TrainBitEqualToTheOtherStages) {
  const std::vector<Json> precisions = {
      Json::object(),
      {{"bf16", {{"enabled", true}}}},
      {{"torch_autocast", {{"enabled", true}, {"dtype", "bf16"}}}, {"log_level", "error"}}};
  for (const int ranks : {1, 2, 3}) {
    for (const Json& precision : precisions) {
      const int stage = precision.contains("torch_autocast") ? 2 : 0;
      const TrainingResult reference =
          run_training({.world_size = ranks, .config = fetch_config(stage, {}, precision)});
      ASSERT_FALSE(reference.weights.empty());
      for (const Json& options : {kByAllReduce, kSequential, kBoth}) {
        const TrainingResult result =
            run_training({.world_size = ranks, .config = fetch_config(3, options, precision)});
        EXPECT_EQ(result.weights, reference.weights) << options << precision << ranks;
        EXPECT_EQ(result.losses, reference.losses) << options << precision << ranks;
      }
    }
  }
}

/// The collectives of two forwards on two ranks, whose second one knows what comes next.
CallNotes calls_of_forwards(const comm::World& world, const Json& options) {
  const auto notes = std::make_shared<CallNotes>();
  const auto counted = counted_world(world, notes);
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}};
  config["zero_optimization"].update(options);
  const auto model = std::make_shared<TinyGPT>(
      TinyGPTConfig{.vocabulary = 48, .context = 11, .width = 14, .layers = 2, .heads = 2});
  const auto engine = initialize(model, {.config = config, .world = counted}).engine;
  engine->eval();
  notes->clear();
  const FormulaData data{world.size(), 2, 11, 48};
  const c10::NoGradGuard no_grad;
  for (int64_t pass = 0; pass < 2; ++pass) {
    const FormulaBatch batch = data.batch(pass, world.rank());
    engine->forward(batch.tokens, batch.targets);
  }
  return *notes;
}

TEST(FetchOptions, ChooseTheCollectivesThatRun) {
  run_ranks(2, [](comm::World& world) {
    const int64_t params = std::ssize(TinyGPT({.layers = 2}).parameters());
    const auto gathers = [](const CallNotes& notes, const char* subject = "") {
      return count_calls(notes, "all_gather", subject);
    };
    const auto sums = [](const CallNotes& notes, const char* subject = "") {
      return count_calls(notes, "all_reduce", subject);
    };
    const CallNotes plain = calls_of_forwards(world, Json::object());
    EXPECT_GT(gathers(plain), params);
    EXPECT_LT(gathers(plain), 2 * params);  // the second pass has several parameters in one
    EXPECT_GT(gathers(plain), gathers(plain, "parameter '"));
    EXPECT_EQ(sums(plain), 0);

    const CallNotes summed = calls_of_forwards(world, kByAllReduce);
    EXPECT_EQ(gathers(summed), 0);
    EXPECT_EQ(sums(summed), gathers(plain));

    const CallNotes sequential = calls_of_forwards(world, kSequential);
    EXPECT_EQ(gathers(sequential), 2 * params);
    EXPECT_EQ(gathers(sequential, "parameter '"), 2 * params);
    EXPECT_EQ(sums(sequential), 0);

    const CallNotes both = calls_of_forwards(world, kBoth);
    EXPECT_EQ(gathers(both), 0);
    EXPECT_EQ(sums(both, "parameter '"), 2 * params);
  });
}

}  // namespace
}  // namespace deepspeed::testing
