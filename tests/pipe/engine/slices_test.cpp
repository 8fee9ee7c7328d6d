// Tests three axes together: stages, data-parallel ranks and slices of layers.
#include <filesystem>
#include <set>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/normalization.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSize = 8, kHidden = 16;

comm::ProcessGroup slices_of_test;  // of this rank; undefined: the layers are whole

// Passes a value into slices. Its gradient is the sum of theirs.
struct IntoSlices : torch::autograd::Function<IntoSlices> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    at::Tensor sum = gradients[0].clone();
    slices_of_test.all_reduce(sum);
    return {sum};
  }
};
// Sums the parts of the slices.
struct OutOfSlices : torch::autograd::Function<OutOfSlices> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
    at::Tensor sum = x.clone();
    slices_of_test.all_reduce(sum);
    return sum;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

// Has a norm and two products. Each slice has a part of the hidden values.
struct SlicedBlockImpl : torch::nn::Module {
  explicit SlicedBlockImpl(int64_t seed)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kSize})))) {
    const int slices = slices_of_test ? slices_of_test.size() : 1;
    const int slice = slices_of_test ? slices_of_test.rank() : 0;
    const auto part = [&](int64_t offset, int64_t rows, int64_t columns, int64_t axis) {
      const at::Tensor whole =
          (at::arange(rows * columns) * 0.7 + double(seed + offset)).sin().view({rows, columns});
      return whole.to(at::kFloat).chunk(slices, axis)[size_t(slice)].mul(0.3).clone();
    };
    up = register_parameter("up", part(0, kHidden, kSize, 0));
    down = register_parameter("down", part(9, kSize, kHidden, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor inner = norm(x);
    if (slices_of_test) inner = IntoSlices::apply(inner);
    at::Tensor output = at::matmul(at::tanh(at::matmul(inner, up.t())), down.t());
    return x + (slices_of_test ? OutOfSlices::apply(output) : output);
  }
  torch::nn::LayerNorm norm;
  at::Tensor up, down;
};
TORCH_MODULE(SlicedBlock);

struct Trained {
  std::vector<double> losses, norms;
};

std::shared_ptr<PipelineEngine> engine_on(const ProcessTopology& topology,
                                          const Json& pipeline = Json::object(), int zero_stage = 1) {
  std::vector<LayerSpec> layers;
  for (int64_t i = 0; i < 4; ++i) layers.push_back(LayerSpec::of<SlicedBlock>(i));
  const auto module = std::make_shared<PipelineModule>(
      layers, PipelineModuleOptions{
                  .topology = topology,
                  .is_model_parallel_parameter = [](const at::Tensor& param) { return param.dim() == 2; },
                  .loss_fn = [](const at::Tensor& output,
                                const at::Tensor& label) { return (output - label).square().mean(); },
                  .partition_method = "uniform",
                  .model_chunks = pipeline.value("model_chunks", 1)});
  const Json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"gradient_accumulation_steps", 8 / topology.get_dim("data")},
                       {"gradient_clipping", 0.05},
                       {"pipeline", pipeline},
                       {"zero_optimization", {{"stage", zero_stage}}},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
  return initialize(module, {.config = config}).engine;
}

Trained train(PipelineEngine& engine, int first, int last) {
  const int per_rank = int(engine.config().gradient_accumulation_steps),
            rank = engine.get_data_parallel_rank();
  Trained trained;
  for (int step = first; step < last; ++step) {
    std::vector<pipe::MicroBatch> batches;
    for (int i = 0; i < per_rank; ++i) {
      const double place = 8 * step + rank * per_rank + i;
      const at::Tensor x = (at::arange(3 * kSize) * 0.31 + place).cos().to(at::kFloat).view({3, kSize});
      batches.push_back({{x}, {x.flip(1)}});
    }
    trained.losses.push_back(engine.train_batch(pipe::DataIterator::over(batches)).item<double>());
    trained.norms.push_back(*engine.get_global_grad_norm());
  }
  return trained;
}

ProcessTopology whole_model() { return PipeModelDataParallelTopology(1, 1, 1); }

void expect_near(const std::vector<double>& values, const std::vector<double>& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance * expected[i]) << what << " " << i;
}

// Slices add halves of a product in another order than the whole model, and steps propagate the difference.
// It shows in norms before losses.
constexpr double kLossTolerance = 2e-6, kNormTolerance = 1e-5;  // relative

// Trains the whole model on one rank.
Trained expected_training(int steps) {
  const std::string text = run_ranks_collect(1, [&](comm::World&) {
                             const Trained trained = train(*engine_on(whole_model()), 0, steps);
                             return Json({trained.losses, trained.norms}).dump();
                           }).front();
  const Json lists = Json::parse(text);
  return {lists[0], lists[1]};
}

struct SlicedRun {
  int stages = 1, slices = 2, data = 1;
  Json pipeline = Json::object();
  int zero_stage = 1;
  bool partitions_activations = false;
};

void train_in_slices(const SlicedRun& run, const Trained& expected) {
  run_ranks(run.stages * run.slices * run.data, [&](comm::World&) {
    const PipeModelDataParallelTopology topology(run.stages, run.slices, run.data);
    const auto grid = std::make_shared<PipelineParallelGrid>(topology);
    slices_of_test = grid->get_slice_parallel_group();
    checkpointing::configure(grid, {.partition_activations = run.partitions_activations});
    const auto engine = engine_on(topology, run.pipeline, run.zero_stage);
    const Trained trained = train(*engine, 0, int(expected.losses.size()));
    checkpointing::configure();
    expect_near(trained.losses, expected.losses, kLossTolerance, "loss");
    expect_near(trained.norms, expected.norms, kNormTolerance, "norm");
    slices_of_test = {};
  });
}

TEST(Slices, TrainAsTheWholeModelBesideStagesAndDataParallelRanks) {
  const Trained expected = expected_training(5);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  train_in_slices({.stages = 1, .slices = 2}, expected);
  train_in_slices({.stages = 2, .slices = 1, .data = 2}, expected);
  for (const int zero_stage : {0, 1, 2}) {
    train_in_slices({.stages = 2, .slices = 2, .data = 1, .zero_stage = zero_stage}, expected);
    train_in_slices({.stages = 2, .slices = 2, .data = 2, .zero_stage = zero_stage}, expected);
  }
}

TEST(Slices, TrainAsTheWholeModelWithEachSchedule) {
  const Trained expected = expected_training(3);
  const Json interleaved = {{"schedule", "interleaved"}, {"model_chunks", 2}};
  train_in_slices({.stages = 2, .pipeline = interleaved}, expected);
  train_in_slices({.stages = 2, .data = 2, .pipeline = {{"schedule", "zero_bubble"}}}, expected);
}

TEST(Slices, TrainAsTheWholeModelWhereEachKeepsAPartOfWhatIsRecomputed) {
  const Trained expected = expected_training(3);
  const Json recomputed = {{"activation_checkpoint_interval", 1}};
  train_in_slices({.stages = 2, .data = 2, .pipeline = recomputed, .partitions_activations = true}, expected);
}

TEST(Slices, HaveFilesOfTheirOwnInCheckpoints) {
  const Trained expected = expected_training(4);
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World&) {
    const PipeModelDataParallelTopology topology(2, 2, 1);
    const PipelineParallelGrid grid(topology);
    slices_of_test = grid.get_slice_parallel_group();
    const auto first = engine_on(topology);
    train(*first, 0, 2);
    first->save_checkpoint(folder.path());
    const auto second = engine_on(topology);
    EXPECT_FALSE(second->load_checkpoint(folder.path()).path.empty());
    const Trained rest = train(*second, 2, 4);
    expect_near(rest.losses, {expected.losses[2], expected.losses[3]}, kLossTolerance, "loss");
    slices_of_test = {};
  });
  run_ranks(2, [&](comm::World&) {  // of one stage
    const PipeModelDataParallelTopology topology(1, 2, 1);
    const PipelineParallelGrid grid(topology);
    slices_of_test = grid.get_slice_parallel_group();
    const auto engine = engine_on(topology);
    EXPECT_FALSE(engine->load_checkpoint(folder.path()).path.empty());
    expect_near(train(*engine, 2, 4).losses, {expected.losses[2], expected.losses[3]}, kLossTolerance,
                "loss");
    slices_of_test = {};
  });
  for (const char* name : {"layer_00-model_00-model_states.pt", "layer_03-model_01-model_states.pt"})
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "global_step2" / name)) << name;
  const checkpoint::Value file =
      checkpoint::read_torch_archive(folder.path() / "global_step2" / "mp_rank_03_model_states.pt");
  const checkpoint::Dict& parts = file.as_dict().at("checkpoint_parallel_dimensions").as_dict();
  EXPECT_EQ(parts.at("pp_degree").as_int(), 2);
  EXPECT_EQ(parts.at("tp_degree").as_int(), 2);
}

// Activations and gradients are equal whether they travel whole or in one part per slice.
TEST(Slices, TrainAlikeWhetherActivationsTravelInParts) {
  run_ranks(4, [&](comm::World&) {
    const PipeModelDataParallelTopology topology(2, 2, 1);
    const PipelineParallelGrid grid(topology);
    slices_of_test = grid.get_slice_parallel_group();
    const Trained expected = train(*engine_on(topology, {{"pipe_partitioned", false}}), 0, 3);
    for (const bool grad_partitioned : {false, true}) {
      const Trained trained = train(*engine_on(topology, {{"grad_partitioned", grad_partitioned}}), 0, 3);
      EXPECT_EQ(trained.losses, expected.losses);
      EXPECT_EQ(trained.norms, expected.norms);
    }
    slices_of_test = {};
  });
}

TEST(PipelineParallelGrid, AnswersAsAnMpu) {
  run_ranks(4, [&](comm::World& world) {
    const PipelineParallelGrid grid(PipeModelDataParallelTopology(2, 2, 1));
    EXPECT_EQ(grid.get_global_rank(), world.rank());
    EXPECT_EQ(grid.get_stage_id(), world.rank() / 2);
    EXPECT_EQ(grid.get_pipe_parallel_rank(), world.rank() / 2);
    EXPECT_EQ(grid.get_pipe_parallel_world_size(), 2);
    EXPECT_EQ(grid.get_slice_parallel_rank(), world.rank() % 2);
    EXPECT_EQ(grid.get_tensor_model_parallel_world_size(), 2);
    EXPECT_EQ(grid.get_data_parallel_world_size(), 1);
    EXPECT_EQ(grid.get_model_parallel_rank(), world.rank());
    EXPECT_EQ(grid.get_model_parallel_world_size(), 4);
    EXPECT_EQ(grid.get_pipeline_model_parallel_rank(), grid.get_stage_id());
    EXPECT_EQ(grid.get_pipeline_model_parallel_world_size(), 2);
    EXPECT_EQ(grid.get_slice_parallel_world_size(), 2);
    EXPECT_EQ(grid.get_tensor_model_parallel_rank(), world.rank() % 2);
    EXPECT_EQ(grid.get_data_parallel_rank(), 0);
    EXPECT_EQ(grid.get_data_parallel_id(), 0);
    EXPECT_THAT(grid.get_data_parallel_group_ranks(), ::testing::ElementsAre(world.rank()));
    EXPECT_EQ(grid.topology().get_dim("model"), 2);
    EXPECT_EQ(grid.stage_to_global(1), 2 + world.rank() % 2);
    for (const auto& [group, size] :
         {std::pair(grid.get_slice_parallel_group(), 2), std::pair(grid.get_tensor_model_parallel_group(), 2),
          std::pair(grid.get_pipe_parallel_group(), 2), std::pair(grid.get_data_parallel_group(), 1),
          std::pair(grid.get_model_parallel_group(), 4)}) {
      EXPECT_EQ(group.size(), size);
    }
    at::Tensor sum = at::full({1}, world.rank());
    grid.get_pipeline_model_parallel_group().all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), 2 + 2 * (world.rank() % 2));
  });
  run_ranks(2, [&](comm::World&) {
    EXPECT_EQ(PipelineParallelGrid().get_pipe_parallel_world_size(), 2);
    EXPECT_TRUE(throws_error<UsageError>([] { PipelineParallelGrid(PipeDataParallelTopology(3, 1)); },
                                         {"3 ranks, expected 2"}));
  });
}

TEST(PipelineParallelGrid, PartitionsActivationsOverSlices) {
  run_ranks(4, [&](comm::World&) {
    const auto grid = std::make_shared<PipelineParallelGrid>(PipeModelDataParallelTopology(2, 2, 1));
    checkpointing::configure(grid, {.partition_activations = true});
    const auto meter = std::make_shared<activation::ActivationMeter>();
    const activation::CountActivations count(meter);
    const at::Tensor y =
        checkpointing::checkpoint([](at::Tensor x) { return x.exp(); }, at::ones({64}).requires_grad_() * 1);
    EXPECT_EQ(meter->kept_bytes(), 64 * 4 / 2);
    y.sum().backward();
    checkpointing::configure();
  });
}

}  // namespace
}  // namespace deepspeed::testing
