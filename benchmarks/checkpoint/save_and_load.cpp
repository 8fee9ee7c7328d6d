// Times of saving and loading a large engine, one line of JSON for save_and_load.py, which compares them.
//   save:  seconds of save_checkpoint() until all is durable, of a step, and of a decoupled save's stall
//   load:  seconds of load_checkpoint() that reads the files once, as its peers, in a process of its own
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <CLI/CLI.hpp>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::Json;

/// Layers of 4 * width^2 weights.
class TallNet : public torch::nn::Module {
 public:
  TallNet(int64_t layers, int64_t width) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      layers_.push_back(
          register_module("layer" + std::to_string(layer),
                          torch::nn::Linear(torch::nn::LinearOptions(width, 4 * width).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor value) {
    for (auto& layer : layers_) value = layer->forward(value).narrow(1, 0, value.size(1)).tanh();
    return value.square().mean();
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

auto make_engine(int64_t parameters, int64_t width, const Json& checkpoint) {
  const Json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"log_level", "warning"},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                       {"zero_optimization", {{"stage", 1}}},
                       {"checkpoint", checkpoint}};
  const int64_t layers = std::max<int64_t>(1, parameters / (4 * width * width));
  return deepspeed::initialize(std::make_shared<TallNet>(layers, width), {.config = config}).engine;
}

/// Trains one step on 256 tokens, few enough that it takes little time.
template <class Engine>
void train_step(Engine& engine, int64_t width) {
  engine.backward(engine.forward(at::ones({256, width})));
  engine.step();
}

Json time_load(const std::string& folder, int64_t parameters, int64_t width) {
  const auto engine = make_engine(parameters, width, Json::object());
  const auto begin = std::chrono::steady_clock::now();
  const bool is_loaded = !engine->load_checkpoint(folder, {.verify_first = false}).path.empty();
  const double seconds = seconds_since(begin);
  if (!is_loaded)
    deepspeed::raise<deepspeed::CheckpointError>("benchmark", "nothing was loaded from ", folder);
  return {{"load", seconds}};
}

/// A new tag each time.
Json time_saves(const std::string& folder, int64_t parameters, int64_t width, int64_t rounds) {
  Json result;
  for (const bool decoupled : {true, false}) {
    const auto engine = make_engine(parameters, width, {{"writer", {{"decoupled", decoupled}}}});
    std::vector<double> steps, stalls, saves;
    for (int64_t round = 0; round < rounds; ++round) {
      const auto before_step = std::chrono::steady_clock::now();
      train_step(*engine, width);
      steps.push_back(seconds_since(before_step));
      const auto begin = std::chrono::steady_clock::now();
      engine->save_checkpoint(folder, {.tag = (decoupled ? "decoupled" : "tag") + std::to_string(round)});
      stalls.push_back(seconds_since(begin));
      engine->wait_for_checkpoint();
      saves.push_back(seconds_since(begin));
    }
    result[decoupled ? "decoupled" : "save"] = median(saves);
    if (decoupled) result["stall"] = median(stalls);
    result["step"] = median(steps);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times of saving and loading"};
  std::string mode, folder;
  int64_t parameters = 103'000'000, width = 1024, rounds = 5;
  app.add_option("mode", mode)->required()->check(CLI::IsMember({"save", "load"}));
  app.add_option("folder", folder)->required();
  app.add_option("--parameters", parameters);
  app.add_option("--width", width);
  app.add_option("--rounds", rounds);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  try {
    const Json result =
        mode == "load" ? time_load(folder, parameters, width) : time_saves(folder, parameters, width, rounds);
    std::printf("%s\n", result.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
