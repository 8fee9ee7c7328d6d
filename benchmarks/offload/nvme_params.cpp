// offload_nvme_params --folder DIR: a forward pass whose parameters lie on a disk (ZeRO-Inference), against
// what the disk itself gives with requests of the same size and number, as a ratio. With --fio what the disk
// gives is what fio reaches.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/linspace.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>

#include "deepspeed/initialize.h"
#include "deepspeed/launcher/program_main.h"

#include "benchmarks/offload/disk_peer.h"

namespace {

using deepspeed::Json;
using Clock = std::chrono::steady_clock;

struct Arguments : deepspeed::benchmarks::DiskArguments {
  int64_t width = 2048;
  int64_t layers = 24;
  int64_t batch = 1;
};

class Layers : public torch::nn::Module {
 public:
  Layers(int64_t width, int64_t layers) {
    for (int64_t index = 0; index < layers; ++index) {
      layers_.push_back(register_module(
          std::to_string(index), torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers_) x = layer->forward(x).tanh();
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

Json config_of(const Arguments& arguments, const char* device) {
  const deepspeed::io::AsyncIoOptions& aio = arguments.aio;
  return {{"train_micro_batch_size_per_gpu", arguments.batch},
          {"log_level", "error"},
          {"aio",
           {{"block_size", aio.block_bytes},
            {"queue_depth", aio.queue_depth},
            {"intra_op_parallelism", aio.num_threads},
            {"single_submit", aio.single_submit},
            {"overlap_events", aio.overlap_events}}},
          {"zero_optimization",
           {{"stage", 3},
            {"stage3_param_persistence_threshold", 0},
            {"offload_param",
             {{"device", device},
              {"nvme_path", arguments.folder},
              {"max_in_cpu", 0},
              {"buffer_size", arguments.width * arguments.width}}}}}};
}

auto make_engine(const Arguments& arguments, const char* device) {
  torch::manual_seed(1);
  return deepspeed::initialize(std::make_shared<Layers>(arguments.width, arguments.layers),
                               {.config = config_of(arguments, device)})
      .engine;
}

template <class Engine>
double seconds_of(Engine& engine, const at::Tensor& input, at::Tensor& output) {
  const at::NoGradGuard guard;
  const auto begin = Clock::now();
  output = engine.forward(input);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const Arguments& arguments) {
  const auto disk = make_engine(arguments, "nvme"), memory = make_engine(arguments, "none");
  for (const auto& engine : {disk, memory}) engine->eval();
  const at::Tensor input =
      at::linspace(-1.0, 1.0, arguments.batch * arguments.width).view({arguments.batch, arguments.width});
  at::Tensor seen, expected;
  for (int pass = 0; pass < 2; ++pass) {  // the second one follows the trace of the first
    seconds_of(*disk, input, seen);
    seconds_of(*memory, input, expected);
    if (seen.equal(expected)) continue;
    std::cerr << "wrong result: a model on the disk gives something else than in memory\n";
    std::exit(1);
  }
  const int64_t bytes = arguments.layers * arguments.width * arguments.width * 4;
  std::vector<double> of_disk, computing;
  for (int loop = 0; loop < arguments.loops; ++loop) {
    const double disk_alone = arguments.seconds({bytes, 0});
    const double pass = seconds_of(*disk, input, seen);
    of_disk.push_back(disk_alone / pass);
    computing.push_back(seconds_of(*memory, input, expected) / pass);
  }
  std::cout << std::fixed << std::setprecision(2) << bytes / 1'000'000
            << " MB of parameters a pass, of which " << disk->memory().total() / 1'000'000
            << " MB in memory: " << median(of_disk) << arguments.of_the_rate()
            << ", with a pass that computes " << median(computing) << " of the time\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A forward pass over parameters on a disk against the disk's own rate");
  Arguments arguments;
  arguments.add_to(app);
  app.add_option("--width", arguments.width, "Of the matrices, which are square");
  app.add_option("--layers", arguments.layers, "How many");
  app.add_option("--batch", arguments.batch, "Rows of the input");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
