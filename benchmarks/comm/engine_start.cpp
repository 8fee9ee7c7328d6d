// What an engine's own communicator costs at initialize(): its time as a share of the whole call, threads and
// open files. Started as a job: deepspeed --num_procs 2 build/release/benchmarks/comm_engine_start.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "deepspeed/comm/init.h"
#include "deepspeed/initialize.h"

namespace {

constexpr int kRepeats = 20;

struct Net : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(256, 256))};
  at::Tensor forward(const at::Tensor& x) { return layer(x).sum(); }
};

double milliseconds_of(const deepspeed::comm::World& world, const std::function<void()>& call) {
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    world.group().barrier();
    const auto begin = std::chrono::steady_clock::now();
    call();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

std::ptrdiff_t num_entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

std::string used() {
  return std::to_string(num_entries("/proc/self/task")) + " threads, " +
         std::to_string(num_entries("/proc/self/fd")) + " open files";
}

void initialize_engine(int stage) {
  const deepspeed::Json config = {{"train_micro_batch_size_per_gpu", 1},
                                  {"optimizer", {{"type", "Adam"}}},
                                  {"zero_optimization", {{"stage", stage}}}};
  deepspeed::initialize(std::make_shared<Net>(), {.config = config});
}

}  // namespace

int main() {
  auto world = deepspeed::comm::init_distributed({.verbose = false});
  const auto check = world.own_group("check");
  if (check.all_reduce_scalar(1.0) != world.size()) return EXIT_FAILURE;
  const std::string before = used();
  const auto held = world.own_group("held");
  held.barrier();
  const std::string after = used();
  const double group = milliseconds_of(world, [&] { world.own_group("timed"); });
  const double whole = milliseconds_of(world, [] { initialize_engine(2); });
  if (world.rank() == 0) {
    std::cout << world.size() << " ranks: a group of its own takes " << group
              << " ms, initialize() at stage 2 " << whole << " ms (medians of " << kRepeats << ")\n"
              << "before: " << before << "; with one more group: " << after << std::endl;
  }
  world.shutdown();
}
