// One training run of the GPT of the golden files at benchmark size: step times, start-up, peak memory,
// losses and, where asked for, what the ranks sent and how long forward and backward take alone, as one JSON
// line on rank 0. benchmarks/end_to_end/deepspeed_peer.py is the same run under DeepSpeed; compare.py starts
// the ranks of both, checks that their losses agree, and prints the ratios.
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
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/initialize.h"
#include "deepspeed/launcher/program_main.h"

#include "tests/support/formula_training.h"
#include "tests/support/tiny_gpt.h"

namespace {

using deepspeed::Json;
using deepspeed::comm::CommsLogger;
using deepspeed::comm::LinkBytes;
using deepspeed::testing::FormulaBatch;
using deepspeed::testing::TinyGPT;

constexpr double kWeightScale = 0.02;

struct Options {
  int stage = 2;
  int64_t steps = 20;
  int64_t warmup = 3;
  int64_t micro_batch = 4;
  double clipping = 1.0;
  int64_t alone = 0;
  bool count = false;
  Json patch = Json::object();
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
  app.add_option("--alone", options.alone, "passes of the model without an engine, timed before")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--count", options.count, "count the bytes that rank 0 receives in a step");
  std::string patch = "{}";
  app.add_option("--config", patch, "JSON that is merged into the config");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) std::exit(*status);
  options.patch = Json::parse(patch);
  return options;
}

Json ds_config(const Options& options) {
  Json config = {{"train_micro_batch_size_per_gpu", options.micro_batch},
                 {"optimizer",
                  {{"type", "AdamW"},
                   {"params", {{"lr", 3e-4}, {"betas", {0.9, 0.95}}, {"eps", 1e-8}, {"weight_decay", 0.1}}}}},
                 {"gradient_clipping", options.clipping},
                 {"zero_optimization", {{"stage", options.stage}}}};
  config.merge_patch(options.patch);
  return config;
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

/// Times forward and backward of a model that no engine has, on all ranks at once.
std::vector<double> alone_ms(const Options& options, const std::vector<FormulaBatch>& batches,
                             deepspeed::comm::World& world) {
  std::vector<double> times;
  if (options.alone == 0) return times;
  double filling_seconds = 0.0;
  auto model = make_model(options, filling_seconds);
  if (options.patch.value(Json::json_pointer("/bf16/enabled"), false)) model->to(at::kBFloat16);
  for (int64_t pass = 0; pass < options.alone; ++pass) {
    const FormulaBatch& batch = batches[size_t(pass) % batches.size()];
    model->zero_grad();
    world.group().barrier();
    const Clock::time_point begin = Clock::now();
    model->forward(batch.tokens, batch.targets).backward();
    times.push_back(milliseconds(Clock::now() - begin));
  }
  return times;
}

/// What one rank measured.
Json run_rank(const Options& options, double launch_time, deepspeed::comm::World& world) {
  const double begin_of_data = seconds_since_epoch();
  const deepspeed::testing::FormulaData data{world.size(), options.micro_batch, options.model.context,
                                             options.model.vocabulary};
  std::vector<FormulaBatch> batches;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step)
    batches.push_back(data.batch(step, world.rank()));
  const std::vector<double> alone = alone_ms(options, batches, world);
  const double data_seconds = seconds_since_epoch() - begin_of_data;
  double filling_seconds = 0.0;  // the formulas are no part of a start: both sides leave them out
  auto model = make_model(options, filling_seconds);
  const int64_t parameters = num_parameters(*model);
  auto [engine, optimizer, loader, scheduler] =
      deepspeed::initialize(model, {.config = ds_config(options), .world = world});
  const double ready_seconds = seconds_since_epoch() - launch_time - filling_seconds - data_seconds;

  auto& logger = CommsLogger::instance();
  std::vector<double> step_ms, losses;
  Json parts_ms = Json::array();  // forward, backward with reductions, step with the gathering of parameters
  for (const FormulaBatch& batch : batches) {
    if (options.count && step_ms.size() == size_t(options.warmup))
      logger.start({.ranks_per_node = world.ranks_per_node()});
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
  logger.stop();
  const LinkBytes received = logger.link_bytes();
  step_ms.erase(step_ms.begin(), step_ms.begin() + options.warmup);
  return {{"alone_ms", alone},
          {"received_bytes_a_step",
           {{"within_node", received.within_node / double(options.steps)},
            {"between_nodes", received.between_nodes / double(options.steps)}}},
          {"parameters", parameters},
          {"ready_seconds", ready_seconds},
          {"step_ms", step_ms},
          {"parts_ms", parts_ms},
          {"losses", losses},
          {"peak_rss_mb", peak_rss_mb()}};
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
                 {"alone_ms", ranks.front().at("alone_ms")},
                 {"received_bytes_a_step", ranks.front().at("received_bytes_a_step")},
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
    for (size_t i = 0; i < result["alone_ms"].size(); ++i) {
      result["alone_ms"][i] =
          std::max(result["alone_ms"][i].get<double>(), rank.at("alone_ms").at(i).get<double>());
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
