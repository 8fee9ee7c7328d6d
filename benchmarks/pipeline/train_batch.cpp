// Trains a pipeline of equal stages, and prints losses, step times and peak memory as one JSON line on rank
// 0. peer.py is the same run under DeepSpeed; compare.py starts the ranks of both. With --bubble the time of
// a batch is held against that of the passes of a stage alone, which gives the bubble of a schedule.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <CLI/CLI.hpp>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/launcher/program_main.h"
#include "deepspeed/pipe.h"
#include "deepspeed/pipe/analysis/figures.h"

namespace {

using Clock = std::chrono::steady_clock;
using deepspeed::Json;
using deepspeed::LayerSpec;

struct Options {
  int stages = 2;
  int64_t layers = 8;
  int64_t width = 256;
  int64_t rows = 256;  // of a micro batch
  int micro_batches = 8;
  int64_t steps = 40;
  int64_t warmup = 2;
  int zero_stage = 1;
  std::string schedule = "1f1b";
  int model_chunks = 1;
  bool measures_bubble = false;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Times batches of a pipeline; run once a rank");
  app.add_option("--stages", options.stages)->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers)->check(CLI::PositiveNumber);
  app.add_option("--width", options.width)->check(CLI::PositiveNumber);
  app.add_option("--rows", options.rows, "of a micro batch")->check(CLI::PositiveNumber);
  app.add_option("--micro_batches", options.micro_batches)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--zero_stage", options.zero_stage)->check(CLI::Range(0, 2));
  app.add_option("--schedule", options.schedule, "pipeline.schedule");
  app.add_option("--model_chunks", options.model_chunks)->check(CLI::PositiveNumber);
  app.add_flag("--bubble", options.measures_bubble, "print the bubble and that of the formula");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) std::exit(*status);
  return options;
}

// Values that peer.py computes as well.
at::Tensor formula(at::IntArrayRef sizes, double offset, double scale) {
  const int64_t numel = c10::multiply_integers(sizes);
  return (at::arange(numel, at::kDouble) * 0.37 + offset).sin().mul(scale).to(at::kFloat).view(sizes);
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t width, int64_t index)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {
    const torch::NoGradGuard no_grad;
    up->weight.copy_(formula(up->weight.sizes(), double(index), 0.05));
    down->weight.copy_(formula(down->weight.sizes(), double(index) + 0.5, 0.05));
    up->bias.zero_();
    down->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& hidden) {
    return hidden + down(torch::nn::functional::gelu(up(norm(hidden))));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

std::vector<deepspeed::pipe::MicroBatch> batches_of(const Options& options, int64_t step) {
  std::vector<deepspeed::pipe::MicroBatch> batches;
  for (int i = 0; i < options.micro_batches; ++i) {
    const double place = double(step * options.micro_batches + i);
    batches.push_back({{formula({options.rows, options.width}, place, 1.0)},
                       {formula({options.rows, options.width}, place + 0.25, 1.0)}});
  }
  return batches;
}

std::vector<LayerSpec> layers_of(const Options& options) {
  std::vector<LayerSpec> layers;
  for (int64_t i = 0; i < options.layers; ++i) layers.push_back(LayerSpec::of<Block>(options.width, i));
  return layers;
}

double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The passes of a micro batch through the layers of one stage, alone: forward, and both halves of backward.
deepspeed::pipe::PassCosts costs_of_stage(const Options& options) {
  std::vector<Block> blocks;
  for (int64_t i = 0; i < options.layers / options.stages; ++i) blocks.emplace_back(options.width, i);
  std::vector<double> forwards, inputs, weights;
  for (int round = 0; round < 9; ++round) {
    const at::Tensor input = formula({options.rows, options.width}, round, 1.0).requires_grad_();
    auto begin = Clock::now();
    at::Tensor hidden = input;
    for (auto& block : blocks) hidden = block->forward(hidden);
    forwards.push_back(seconds_since(begin));
    const at::Tensor gradient = at::ones_like(hidden);
    deepspeed::autograd::WeightBackward later;
    begin = Clock::now();
    deepspeed::autograd::backward_inputs({hidden}, {gradient}, {input}, later);
    inputs.push_back(seconds_since(begin));
    begin = Clock::now();
    later.run();
    weights.push_back(seconds_since(begin));
  }
  return {median(forwards), median(inputs), median(weights)};
}

void run(const Options& options) {
  const auto world = deepspeed::comm::init_distributed();
  at::set_num_threads(1);
  const auto module = std::make_shared<deepspeed::PipelineModule>(
      layers_of(options),
      deepspeed::PipelineModuleOptions{
          .num_stages = options.stages,
          .loss_fn = [](const at::Tensor& output,
                        const at::Tensor& label) { return (output - label).square().mean(); },
          .partition_method = "uniform",
          .model_chunks = options.model_chunks});
  const Json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"gradient_accumulation_steps", options.micro_batches},
                       {"steps_per_print", 100000},
                       {"gradient_clipping", 0.0},
                       {"zero_optimization", {{"stage", options.zero_stage}}},
                       {"pipeline", {{"schedule", options.schedule}, {"model_chunks", options.model_chunks}}},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 1e-5}, {"eps", 1e-5}}}}}};
  const auto engine = deepspeed::initialize(module, {.config = config}).engine;
  std::vector<double> losses, milliseconds;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const auto data = batches_of(options, step);
    const auto iterator = deepspeed::pipe::DataIterator::over(data);
    world.group().barrier();
    const auto begin = Clock::now();
    const at::Tensor loss = engine->train_batch(iterator);
    losses.push_back(loss.item<double>());
    if (step >= options.warmup) milliseconds.push_back(1000 * seconds_since(begin));
  }
  Json result = {{"losses", losses}, {"step_ms", median(milliseconds)}, {"peak_mb", peak_rss_mb()}};
  if (options.measures_bubble) {
    const auto costs = costs_of_stage(options);
    const double ideal = deepspeed::pipe::ideal_time(options.micro_batches, costs);
    const double simulated =
        deepspeed::pipe::simulated_time(deepspeed::pipe::train_steps(options.schedule, options.micro_batches,
                                                                     options.stages, options.model_chunks),
                                        costs);
    result["bubble"] = median(milliseconds) / 1000 / ideal - 1;
    result["bubble_by_formula"] = simulated / ideal - 1;
    result["batch_against_formula"] = median(milliseconds) / 1000 / simulated;
  }
  const std::vector<double> peaks = world.group().all_gather_scalar(peak_rss_mb());
  result["peak_mb"] = *std::ranges::max_element(peaks);
  if (world.rank() == 0) std::cout << result.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  return deepspeed::launcher::exit_of_work("pipeline_train_batch", [&] { run(options); });
}
