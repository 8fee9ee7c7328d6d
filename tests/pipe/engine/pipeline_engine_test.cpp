// A pipeline trains like the model from which it is cut.
#include "deepspeed/pipe/engine/pipeline_engine.h"

#include <torch/data/datasets/base.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"

#include "tests/pipe/engine/small_pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

std::vector<double> whole_losses(const PipelineRun& run, int data_ranks) {
  std::vector<double> losses;
  // Runs in a separate process: this one forks the ranks and must have no threads.
  const auto outcomes = run_ranks_collect(1, [&](comm::World&) {
    std::ostringstream text;
    text.precision(17);
    for (const double loss : train_whole(run, data_ranks)) text << loss << " ";
    return text.str();
  });
  std::istringstream text(outcomes.front());
  for (double loss = 0; text >> loss;) losses.push_back(loss);
  return losses;
}

void expect_losses(const PipelineRun& run, int num_ranks, double tolerance) {
  const int data_ranks = num_ranks / run.num_stages;
  const std::vector<double> expected = whole_losses(run, data_ranks);
  ASSERT_EQ(expected.size(), size_t(run.steps));
  run_ranks(num_ranks, [&](comm::World&) {
    const std::vector<double> losses = train_pipeline(run);
    for (size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], tolerance * expected[step]) << "step " << step;
  });
}

TEST(PipelineEngine, OneStageTrainsAsTheWholeModel) { expect_losses({.num_stages = 1}, 1, 0.0); }

TEST(PipelineEngine, TwoStagesTrainAsTheWholeModelBitForBit) { expect_losses({.num_stages = 2}, 2, 0.0); }

TEST(PipelineEngine, FourStagesTrainAsTheWholeModelBitForBit) {
  expect_losses({.num_stages = 4, .micro_batches = 7}, 4, 0.0);
}

TEST(PipelineEngine, InterleavedChunksTrainAsTheWholeModelBitForBit) {
  expect_losses({.num_stages = 2, .model_chunks = 2, .schedule = "interleaved"}, 2, 0.0);
}

TEST(PipelineEngine, ZeroBubbleTrainsAsTheWholeModelBitForBit) {
  expect_losses({.num_stages = 4, .schedule = "zero_bubble"}, 4, 0.0);
}

TEST(PipelineEngine, TiedWeightsTrainAsOneWeight) {
  expect_losses({.num_stages = 2, .is_tied = true}, 2, 1e-6);
  expect_losses({.num_stages = 4, .schedule = "zero_bubble", .is_tied = true}, 4, 1e-6);
}

TEST(PipelineEngine, ClipsByTheNormOfAllStages) {
  expect_losses({.num_stages = 2, .clipping = 0.1}, 2, 1e-6);
  expect_losses({.num_stages = 2, .clipping = 0.1, .is_tied = true}, 2, 1e-6);
}

TEST(PipelineEngine, StagesTrainDataParallelAtEachZeroStage) {
  for (const int stage : {0, 1, 2})
    expect_losses({.num_stages = 2, .zero_stage = stage, .is_tied = true}, 4, 1e-6);
}

TEST(PipelineEngine, RecomputedLayersTrainAlike) {
  for (const int interval : {1, 2, 4})
    expect_losses({.num_stages = 2, .checkpoint_interval = interval}, 2, 0.0);
  expect_losses({.num_stages = 2, .schedule = "zero_bubble", .zero_stage = 2, .checkpoint_interval = 2}, 2,
                0.0);
  expect_losses({.num_stages = 2, .precision = "autocast", .checkpoint_interval = 2}, 2, 0.0);
}

// Returns its own indices as samples.
struct Rows : torch::data::datasets::Dataset<Rows, torch::data::Example<>> {
  torch::data::Example<> get(size_t index) override {
    return {at::full({4}, double(index)), at::full({1}, double(index))};
  }
  std::optional<size_t> size() const override { return 12; }
};

TEST(PipelineEngine, ReadsItsTrainingDataByDataParallelRanks) {
  run_ranks(4, [](comm::World& world) {
    std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 4),
                                     LayerSpec::of<torch::nn::Linear>(4, 1)};
    const auto seen = std::make_shared<std::vector<double>>();
    const auto loss = [seen](const at::Tensor& output, const at::Tensor& labels) {
      for (int64_t i = 0; i < labels.numel(); ++i) seen->push_back(labels.flatten()[i].item<double>());
      return (output - labels).square().mean();
    };
    const auto module = std::make_shared<PipelineModule>(
        layers, PipelineModuleOptions{.num_stages = 2, .loss_fn = loss, .partition_method = "uniform"});
    const Json config = {{"train_micro_batch_size_per_gpu", 1},
                         {"gradient_accumulation_steps", 3},
                         {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
    const auto engine = initialize(module, Rows(), {.config = config}).engine;
    for (int step = 0; step < 2; ++step) engine->train_batch();
    if (!engine->is_last_stage()) return;
    // The two data-parallel ranks together have read each sample once.
    const at::Tensor own = at::tensor(*seen, at::kDouble), all = at::empty({12}, at::kDouble);
    engine->data_parallel_group().all_gather(all, own);
    EXPECT_TRUE(std::get<0>(all.sort()).equal(at::arange(12, at::kDouble)))
        << "rank " << world.rank() << ": " << all;
  });
}

TEST(PipelineEngine, TrainsInSixteenBits) {
  for (const char* precision : {"bf16", "fp16", "autocast"}) {
    expect_losses({.num_stages = 2, .precision = precision}, 2, 0.0);
    expect_losses({.num_stages = 2, .schedule = "zero_bubble", .zero_stage = 1, .precision = precision}, 2,
                  0.0);
  }
}

struct OneWeight : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight = register_parameter("weight", at::ones({1}));
};

// The gradients are 1 on one data-parallel rank and 1/256 on the other. bf16 rounds their sum to 1.
TEST(PipelineEngine, KeepsTheBitsOfSumsThatTravelInFp32) {
  run_ranks(4, [](comm::World&) {
    for (const int zero_stage : {0, 1, 2}) {
      const auto loss = [](const at::Tensor& output, const at::Tensor&) {
        return output.to(at::kFloat).sum();
      };
      const auto module = std::make_shared<PipelineModule>(
          std::vector<LayerSpec>{LayerSpec::of<OneWeight>(), LayerSpec::of<OneWeight>()},
          PipelineModuleOptions{.num_stages = 2, .loss_fn = loss, .partition_method = "uniform"});
      const Json config = {{"train_micro_batch_size_per_gpu", 1},
                           {"gradient_accumulation_steps", 2},
                           {"zero_optimization", {{"stage", zero_stage}}},
                           {"zero_allow_untested_optimizer", true},
                           {"bf16", {{"enabled", true}}},
                           {"data_types", {{"grad_accum_dtype", "fp32"}}},
                           {"communication_data_type", "fp32"},
                           {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 1.0}}}}}};
      const auto engine = initialize(module, {.config = config}).engine;
      const at::Tensor x =
          at::full({1, 1}, engine->get_data_parallel_rank() == 0 ? 1.0 : 1.0 / 256, at::kBFloat16);
      std::vector<pipe::MicroBatch> batches(2, pipe::MicroBatch{{x}, {x}});
      engine->train_batch(pipe::DataIterator::over(batches));
      const at::Tensor weight = safe_get_full_fp32_param(*engine, module->parameters().front());
      EXPECT_EQ(weight.item<double>(), 1 - (1 + 1.0 / 256) / 2) << "ZeRO " << zero_stage;
    }
  });
}

// Runs each schedule with each ZeRO stage and each precision, with data parallelism and tied weights.
TEST(PipelineEngine, SchedulesZeroStagesAndPrecisionsGoTogether) {
  const char* const schedules[] = {"1f1b", "interleaved", "zero_bubble"};
  const char* const precisions[] = {"fp32", "bf16", "fp16"};
  for (int schedule = 0; schedule < 3; ++schedule) {
    for (int zero_stage = 0; zero_stage < 3; ++zero_stage) {
      const int precision = (schedule + zero_stage) % 3, stages = schedule == zero_stage ? 4 : 2;
      SCOPED_TRACE(message(schedules[schedule], " ", precisions[precision], ", ZeRO ", zero_stage));
      expect_losses({.num_stages = stages,
                     .model_chunks = schedule == 1 ? 2 : 1,
                     .schedule = schedules[schedule],
                     .zero_stage = zero_stage,
                     .precision = precisions[precision],
                     .is_tied = true},
                    2 * stages, precision == 0 ? 1e-6 : 2e-3);
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
