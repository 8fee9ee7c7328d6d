// One training run of the GPT of the golden files at benchmark size: step times, start-up, peak memory and
// losses, as one JSON line on rank 0. benchmarks/end_to_end/deepspeed_peer.py is the same run under
// DeepSpeed; compare.py starts the ranks of both, checks that their losses agree, and prints the ratios.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>

#include "deepspeed/base/env.h"
#include "deepspeed/initialize.h"
#include "deepspeed/launcher/program_main.h"

#include "tests/support/formula_training.h"
#include "tests/support/tiny_gpt.h"

namespace {

using deepspeed::Json;
using deepspeed::testing::FormulaBatch;
using deepspeed::testing::TinyGPT;

constexpr double kWeightScale = 0.02;

struct Options {
  int stage = 2;
  int64_t steps = 20;
  int64_t warmup = 3;
  int64_t micro_batch = 4;
  double clipping = 1.0;
  deepspeed::testing::TinyGPTConfig model{
      .vocabulary = 1024, .context = 64, .width = 512, .layers = 8, .heads = 8};
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Times ZeRO training steps of a GPT; run once a rank");
  app.add_option("--stage", options.stage, "ZeRO stage")->check(CLI::Range(0, 3));
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--micro_batch", options.micro_batch, "samples a rank and step")->check(CLI::PositiveNumber);
  app.add_option("--clipping", options.clipping, "gradient_clipping")->check(CLI::NonNegativeNumber);
  app.add_option("--width", options.model.width)->check(CLI::PositiveNumber);
  app.add_option("--layers", options.model.layers)->check(CLI::PositiveNumber);
  app.add_option("--heads", options.model.heads)->check(CLI::PositiveNumber);
  app.add_option("--vocabulary", options.model.vocabulary)->check(CLI::PositiveNumber);
  app.add_option("--context", options.model.context)->check(CLI::PositiveNumber);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) std::exit(*status);
  return options;
}

Json ds_config(const Options& options) {
  return {{"train_micro_batch_size_per_gpu", options.micro_batch},
          {"optimizer",
           {{"type", "AdamW"},
            {"params", {{"lr", 3e-4}, {"betas", {0.9, 0.95}}, {"eps", 1e-8}, {"weight_decay", 0.1}}}}},
          {"gradient_clipping", options.clipping},
          {"zero_optimization", {{"stage", options.stage}}}};
}

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// VmHWM, the most memory that the process ever held.
double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::stod(line.substr(6)) / 1024;
    }
  }
  return 0.0;
}

std::shared_ptr<TinyGPT> make_model(const Options& options, double& filling_seconds) {
  auto model = std::make_shared<TinyGPT>(options.model);
  const double begin = seconds_since_epoch();
  deepspeed::testing::fill_parameters(*model, kWeightScale);
  filling_seconds = seconds_since_epoch() - begin;
  return model;
}

int64_t num_parameters(const TinyGPT& model) {
  int64_t numel = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    numel += parameter.numel();
  }
  return numel;
}

/// What one rank measured.
Json run_rank(const Options& options, double launch_time, deepspeed::comm::World& world) {
  double filling_seconds = 0.0;  // the formula is no part of a start: both sides leave it out
  auto model = make_model(options, filling_seconds);
  const int64_t parameters = num_parameters(*model);
  auto [engine, optimizer, loader, scheduler] =
      deepspeed::initialize(model, {.config = ds_config(options), .world = world});
  const double ready_seconds = seconds_since_epoch() - launch_time - filling_seconds;

  const deepspeed::testing::FormulaData data{world.size(), options.micro_batch, options.model.context,
                                             options.model.vocabulary};
  std::vector<FormulaBatch> batches;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    batches.push_back(data.batch(step, world.rank()));
  }
  std::vector<double> step_ms, losses;
  Json parts_ms = Json::array();  // forward, backward with reductions, step with the gathering of parameters
  for (const FormulaBatch& batch : batches) {
    world.group().barrier();
    const Clock::time_point begin = Clock::now();
    const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
    const Clock::time_point after_forward = Clock::now();
    engine->backward(loss);
    const Clock::time_point after_backward = Clock::now();
    engine->step();
    const Clock::time_point end = Clock::now();
    step_ms.push_back(milliseconds(end - begin));
    parts_ms.push_back({milliseconds(after_forward - begin), milliseconds(after_backward - after_forward),
                        milliseconds(end - after_backward)});
    losses.push_back(loss.template item<double>());
  }
  step_ms.erase(step_ms.begin(), step_ms.begin() + options.warmup);
  return {{"parameters", parameters}, {"ready_seconds", ready_seconds},
          {"step_ms", step_ms},       {"parts_ms", parts_ms},
          {"losses", losses},         {"peak_rss_mb", peak_rss_mb()}};
}

/// The run as a whole: a step takes as long as its slowest rank.
Json combine(const Options& options, const std::vector<std::string>& texts) {
  std::vector<Json> ranks;
  for (const std::string& text : texts) {
    ranks.push_back(Json::parse(text));
  }
  Json result = {{"program", "deepspeed-cpp"},
                 {"stage", options.stage},
                 {"world_size", ranks.size()},
                 {"parameters", ranks.front().at("parameters")},
                 {"ready_seconds", 0.0},
                 {"step_ms", ranks.front().at("step_ms")},
                 {"parts_ms", ranks.front().at("parts_ms")},
                 {"peak_rss_mb", Json::array()},
                 {"losses", Json::array()}};
  for (const Json& rank : ranks) {
    result["ready_seconds"] =
        std::max(result["ready_seconds"].get<double>(), rank.at("ready_seconds").get<double>());
    result["peak_rss_mb"].push_back(rank.at("peak_rss_mb"));
    for (size_t i = 0; i < result["step_ms"].size(); ++i) {
      result["step_ms"][i] =
          std::max(result["step_ms"][i].get<double>(), rank.at("step_ms").at(i).get<double>());
    }
  }
  for (size_t step = 0; step < ranks.front().at("losses").size(); ++step) {
    Json of_ranks = Json::array();
    for (const Json& rank : ranks) {
      of_ranks.push_back(rank.at("losses").at(step));
    }
    result["losses"].push_back(of_ranks);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const double main_time = seconds_since_epoch();
  try {
    const Options options = parse(argc, argv);
    at::set_num_threads(1);
    const auto launch = deepspeed::env::get("LAUNCH_TIME");
    auto world = deepspeed::comm::init_distributed();
    const Json own = run_rank(options, launch ? std::stod(*launch) : main_time, world);
    const std::vector<std::string> texts = world.group().all_gather_text(own.dump());
    if (world.rank() == 0) {
      std::cout << combine(options, texts).dump() << std::endl;
    }
    world.shutdown();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
