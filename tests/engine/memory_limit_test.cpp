// A model whose parameters alone are more than one rank may take: built under zero::Init.
#include <fstream>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "deepspeed/zero/init.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

/// 256 MiB in fp32.
struct LargeMlp : torch::nn::Module {
  static constexpr int64_t kWidth = 1024, kLayers = 64;
  static constexpr int64_t kBytes = 4 * kWidth * kWidth * kLayers;

  LargeMlp() {
    for (int64_t i = 0; i < kLayers; ++i) {
      const auto options = torch::nn::LinearOptions(kWidth, kWidth).bias(false);
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(options)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = x + layer->forward(x);
    return x.pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
};

int64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) return 1024 * std::stoll(line.substr(7));
  }
  return 0;
}

/// From here on the process takes at most so many bytes of memory more than it has.
void limit_memory(int64_t bytes) {
  const auto limit = static_cast<rlim_t>(data_bytes() + bytes);
  const rlimit both{limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &both), 0);
}

constexpr int64_t kLimit = LargeMlp::kBytes - (8 << 20);

TEST(MemoryLimit, OfLessThanTheParametersKeepsTheModelFromBeingBuiltWhole) {
  run_ranks(1, [](comm::World&) {
    limit_memory(kLimit);
    EXPECT_ANY_THROW(LargeMlp());
  });
}

TEST(MemoryLimit, OfLessThanTheParametersLetsThemBeBuiltPartitioned) {
  run_ranks(4, [](comm::World& world) {
    world.group().barrier();  // its threads have their stacks
    limit_memory(LargeMlp::kBytes / 2);
    const zero::Init init({.world = world, .max_whole_bytes = 8 << 20});
    const LargeMlp model;
    EXPECT_EQ(model.parameters().size(), size_t{LargeMlp::kLayers});
  });
}

}  // namespace
}  // namespace deepspeed::testing
