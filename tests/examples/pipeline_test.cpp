// The example's GPT as a pipeline: its losses do not depend on the number of stages, and its activations take
// the memory that is foretold.
#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/base/log.h"

#include "pipeline_trainer.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace gpt2 {
namespace {

using deepspeed::testing::TemporaryFolder;

Options options_in(const TemporaryFolder& folder, const PipelineOptions& pipeline) {
  Options options;
  options.config.deepspeed_config = (folder.path() / "config.json").string();
  options.data = (folder.path() / "text.txt").string();
  options.loss_log = (folder.path() / "losses.txt").string();
  options.pipeline = pipeline;
  return options;
}

void write_inputs(const TemporaryFolder& folder, const char* config) {
  std::ofstream(folder.path() / "config.json") << config;
  std::ofstream text(folder.path() / "text.txt");
  for (int i = 0; i < 60; ++i) text << "to be or not to be, that is the question " << i << "\n";
}

std::vector<double> losses_of(const TemporaryFolder& folder, int ranks, const PipelineOptions& pipeline) {
  Options options = options_in(folder, pipeline);
  options.steps = 3;
  options.model = {.context = 8, .layers = 4, .heads = 2, .width = 16};
  const auto outcomes = deepspeed::testing::fork_ranks(ranks, [&](int) {
    train_pipeline(options);
    return std::string();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << testing::PrintToString(outcome.failures);
  std::ifstream log(options.loss_log);
  std::vector<double> losses;
  int64_t step = 0;
  for (double loss = 0; log >> step >> loss;) losses.push_back(loss);
  EXPECT_EQ(losses.size(), 3u);
  return losses;
}

TEST(Pipeline, LossesAreThoseOfOneStage) {
  const TemporaryFolder folder;
  write_inputs(
      folder,
      R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 1},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})");
  const auto expected = losses_of(folder, 1, {.stages = 1});
  for (const auto& losses :
       {losses_of(folder, 2, {.stages = 2}), losses_of(folder, 2, {.stages = 2, .recompute = 2})}) {
    for (size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  }
  EXPECT_LT(expected.back(), expected.front());
}

TEST(Pipeline, LossesOfTwoStagesTimesTwoDataParallelRanksAreThoseOfTwoDataParallelRanks) {
  const TemporaryFolder folder;
  write_inputs(folder, R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
                           "zero_optimization": {"stage": 2},
                           "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})");
  const auto expected = losses_of(folder, 2, {.stages = 1});
  const auto losses = losses_of(folder, 4, {.stages = 2, .recompute = 2});
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], 1e-5 * expected[step]) << "step " << step;
}

constexpr int64_t kRows = 4, kContext = 64, kWidth = 128;

// Bytes, as the engine's log tells them, of a step of a GPT of so many blocks.
double activations_of(const TemporaryFolder& folder, int64_t layers, int recompute) {
  Options options = options_in(folder, {.stages = 1, .recompute = recompute});
  options.steps = 1;
  options.model = {.context = kContext, .layers = layers, .heads = 4, .width = kWidth};
  const auto outcome = deepspeed::testing::fork_ranks(1, [&](int) {
    std::string lines;
    deepspeed::log::set_level(deepspeed::log::Level::kInfo);
    deepspeed::log::set_sink([&](deepspeed::log::Level, const std::string& line) { lines += line + "\n"; });
    train_pipeline(options);
    return lines;
  });
  EXPECT_TRUE(outcome[0].ok()) << testing::PrintToString(outcome[0].failures);
  std::smatch found;
  const std::regex line("keeps for backward: at most ([0-9.]+) MB");
  if (!std::regex_search(outcome[0].value, found, line)) ADD_FAILURE() << outcome[0].value;
  return found.empty() ? 0 : 1e6 * std::stod(found[1]);
}

TEST(Pipeline, ActivationsTakeNoMoreThanTheInputsOfRegionsAndOneRegion) {
  const TemporaryFolder folder;
  write_inputs(folder, R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
                           "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})");
  const double input = double(kRows * kContext * kWidth * sizeof(float));
  const double plain = activations_of(folder, 8, 0);
  for (const int interval : {1, 2, 4}) {
    const double kept = activations_of(folder, 8, interval);
    const double foretold = activations_of(folder, interval, 0) + 8.0 / interval * input;
    EXPECT_LE(kept, 1.02 * foretold) << "interval " << interval;
    EXPECT_GE(kept, 0.8 * foretold) << "interval " << interval;
    EXPECT_LT(kept, 0.8 * plain) << "interval " << interval;
  }
}

}  // namespace
}  // namespace gpt2
