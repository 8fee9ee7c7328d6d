// What stage 3 adds to a training step where parameters are many: models of many small modules, whose time is
// that of looking ahead, and one of few large ones, whose time is that of the gathers. Stage 2 trains the
// same model in the same run, on the same ranks, and must have the same weights before anything is timed:
//   deepspeed --num_procs 2 build/release/benchmarks/end_to_end_parameter_counts
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "deepspeed/deepspeed.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int64_t> counts = {500, 1000, 2000, 4000};
  int64_t small = 16;    // elements of a small parameter
  int64_t layers = 8;    // of the model of few large parameters
  int64_t width = 1024;  // of these layers
  int64_t steps = 15;
  int64_t warmup = 3;
  int64_t persistence_threshold = 100'000;
  std::string folder = "/tmp/parameter_counts";
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Times stage 3 against stage 2 by the number of parameters; run once a rank");
  app.add_option("--counts", options.counts, "numbers of small parameters")->check(CLI::PositiveNumber);
  app.add_option("--small", options.small, "elements of a small one")->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers, "linear layers of the large model")->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "of these")->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before them")->check(CLI::PositiveNumber);
  app.add_option("--persistence_threshold", options.persistence_threshold,
                 "zero_optimization.stage3_param_persistence_threshold");
  app.add_option("--folder", options.folder, "of the checkpoints");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) std::exit(*status);
  return options;
}

struct Scale : torch::nn::Module {
  explicit Scale(int64_t numel) : weight(register_parameter("weight", torch::ones({numel}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};

/// Modules one after the other, the loss behind them.
struct Chain : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    for (const auto& scale : scales) x = scale->forward(x);
    for (auto& linear : linears) x = torch::tanh(linear->forward(x));
    return x.pow(2).mean();
  }
  std::vector<std::shared_ptr<Scale>> scales;
  std::vector<torch::nn::Linear> linears;
};

struct Case {
  std::string name;
  std::function<std::shared_ptr<Chain>()> make;
  at::Tensor input;
};

Case many_small(int64_t count, int64_t numel) {
  const auto make = [=] {
    auto model = std::make_shared<Chain>();
    for (int64_t index = 0; index < count; ++index)
      model->scales.push_back(model->register_module(std::to_string(index), std::make_shared<Scale>(numel)));
    return model;
  };
  return {std::to_string(count) + " of " + std::to_string(numel), make, torch::linspace(0.5, 1.5, numel)};
}

Case few_large(int64_t layers, int64_t width) {
  const auto make = [=] {
    torch::manual_seed(1);
    auto model = std::make_shared<Chain>();
    for (int64_t index = 0; index < layers; ++index)
      model->linears.push_back(
          model->register_module(std::to_string(index), torch::nn::Linear(width, width)));
    return model;
  };
  return {std::to_string(layers) + " layers of " + std::to_string(width), make,
          torch::linspace(-1, 1, 8 * width).view({8, width})};
}

constexpr std::array<const char*, 5> kParts = {"initialize", "forward", "backward", "step", "save"};

struct Measured {
  std::array<double, kParts.size()> ms;  // medians; of initialize and save the one time
  std::vector<at::Tensor> weights;
  std::vector<double> losses;
};

double timed(const deepspeed::comm::World& world, const std::function<void()>& work) {
  world.group().barrier();
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Measured run(const Case& one, int stage, const Options& options, const deepspeed::comm::World& world) {
  const deepspeed::Json config = {
      {"train_micro_batch_size_per_gpu", 1},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}}}}},
      {"zero_optimization",
       {{"stage", stage}, {"stage3_param_persistence_threshold", options.persistence_threshold}}}};
  Measured measured;
  const auto model = one.make();
  std::shared_ptr<deepspeed::DeepSpeedEngine<Chain>> engine;
  measured.ms[0] =
      timed(world, [&] { engine = deepspeed::initialize(model, {.config = config, .world = world}).engine; });
  std::array<std::vector<double>, 3> parts;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    at::Tensor loss;
    const double forward = timed(world, [&] { loss = engine->forward(one.input); });
    const double backward = timed(world, [&] { engine->backward(loss); });
    const double update = timed(world, [&] { engine->step(); });
    measured.losses.push_back(loss.item<double>());
    if (step < options.warmup) continue;
    parts[0].push_back(forward);
    parts[1].push_back(backward);
    parts[2].push_back(update);
  }
  for (size_t part = 0; part < parts.size(); ++part) measured.ms[part + 1] = median(parts[part]);
  measured.ms[4] = timed(world, [&] { engine->save_checkpoint(options.folder, {.tag = "t"}); });
  const deepspeed::zero::GatheredParameters gathered(model->parameters());
  for (const at::Tensor& weight : model->parameters()) measured.weights.push_back(weight.detach().clone());
  return measured;
}

bool are_equal(const Measured& one, const Measured& other) {
  for (size_t index = 0; index < one.weights.size(); ++index) {
    if (!one.weights[index].equal(other.weights[index])) return false;
  }
  return one.losses == other.losses;
}

void print_row(const std::string& name, const Measured& stage2, const Measured& stage3) {
  std::printf("| %s |", name.c_str());
  for (size_t part = 0; part < kParts.size(); ++part)
    std::printf(" %.2f / %.2f = %.2f |", stage3.ms[part], stage2.ms[part], stage3.ms[part] / stage2.ms[part]);
  std::printf("\n");
  std::fflush(stdout);
}

void compare(const Options& options, deepspeed::comm::World& world) {
  std::vector<Case> cases;
  for (const int64_t count : options.counts) cases.push_back(many_small(count, options.small));
  cases.push_back(few_large(options.layers, options.width));
  if (world.rank() == 0) {
    std::printf("Milliseconds at stage 3 / at stage 2 = ratio\n| parameters |");
    for (const char* part : kParts) std::printf(" %s |", part);
    std::printf("\n|---|---|---|---|---|---|\n");
  }
  for (const Case& one : cases) {
    const Measured stage2 = run(one, 2, options, world);
    const Measured stage3 = run(one, 3, options, world);
    if (!are_equal(stage2, stage3)) throw std::runtime_error(one.name + ": stages 2 and 3 differ");
    if (world.rank() == 0) print_row(one.name, stage2, stage3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    at::set_num_threads(1);
    auto world = deepspeed::comm::init_distributed();
    compare(options, world);
    if (world.rank() == 0) std::filesystem::remove_all(options.folder);
    world.shutdown();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
