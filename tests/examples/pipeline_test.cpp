// The example's GPT as a pipeline: its losses do not depend on the number of stages.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "pipeline_trainer.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace gpt2 {
namespace {

using deepspeed::testing::TemporaryFolder;

std::vector<double> losses_of(const TemporaryFolder& folder, int ranks, const PipelineOptions& pipeline) {
  Options options;
  options.config.deepspeed_config = (folder.path() / "config.json").string();
  options.data = (folder.path() / "text.txt").string();
  options.loss_log = (folder.path() / "losses.txt").string();
  options.steps = 3;
  options.model = {.context = 8, .layers = 4, .heads = 2, .width = 16};
  options.pipeline = pipeline;
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
  std::ofstream(folder.path() / "config.json")
      << R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 1},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})";
  std::ofstream text(folder.path() / "text.txt");
  for (int i = 0; i < 60; ++i) text << "to be or not to be, that is the question " << i << "\n";
  text.close();
  const auto expected = losses_of(folder, 1, {.stages = 1});
  for (const auto& losses :
       {losses_of(folder, 2, {.stages = 2}), losses_of(folder, 2, {.stages = 2, .recompute = 2})}) {
    for (size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  }
  EXPECT_LT(expected.back(), expected.front());
}

}  // namespace
}  // namespace gpt2
