// A model whose parameters alone are more than one rank may take: built under zero::Init, and trained.
#include <fstream>
#include <string>

#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/init.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitizer.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (has_address_sanitizer()) GTEST_SKIP() << "AddressSanitizer's own memory counts against the limit";
    set_thread_stacks(3 << 19);
  }
  void TearDown() override { set_thread_stacks(8 << 20); }

 private:
  /// The whole stack of each thread counts against the limit, used or not, and how many threads there are is
  /// not what these tests are about.
  static void set_thread_stacks(size_t bytes) {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
    ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
};

Json limited_config(const Json& optimizer) {
  return {{"train_micro_batch_size_per_gpu", 2},
          {"optimizer", optimizer},
          {"zero_allow_untested_optimizer", true},
          {"zero_optimization",
           {{"stage", 3},
            {"reduce_bucket_size", 1 << 20},
            {"overlap_comm", false},
            {"stage3_prefetch_bucket_size", 1 << 20},
            {"stage3_max_live_parameters", 2 << 20}}}};
}

std::shared_ptr<LargeMlp> built_large_model(comm::World& world, const Json& config) {
  const zero::Init init({.config_dict_or_path = config, .world = world, .max_whole_bytes = 8 << 20});
  return std::make_shared<LargeMlp>();
}

const Json kLimitedAdam = {{"type", "Adam"}, {"params", {{"lr", 1e-5}}}};

void train_large_model(comm::World& world, const Json& config) {
  world.group().barrier();  // its threads have their stacks
  limit_memory(kLimit);
  const auto model = built_large_model(world, config);
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = engine->forward(at::ones({2, LargeMlp::kWidth}));
    engine->backward(loss);
    engine->step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first);
}

TEST_F(MemoryLimit, KeepsTheModelFromBeingBuiltWhole) {
  run_ranks(1, [](comm::World&) {
    limit_memory(kLimit);
    EXPECT_ANY_THROW(LargeMlp());
  });
}

TEST_F(MemoryLimit, RefusesAModelWhosePartDoesNotFitWithTheNumbers) {
  run_ranks(2, [](comm::World& world) {
    const Json config = limited_config({{"type", "AdamW"}});
    const auto model = built_large_model(world, config);
    limit_memory(LargeMlp::kBytes * 3 / 4);  // half of it has to move, and the gradients take as much
    EXPECT_THAT(error_of<UsageError>([&] { initialize(model, {.config = config, .world = world}); }),
                AllOf(HasSubstr("rank " + std::to_string(world.rank()) + " of 2 needs at least 268435456"),
                      HasSubstr("weights 134217728, gradients 134217728"), HasSubstr("more ranks")));
  });
}

TEST_F(MemoryLimit, LetsFourRanksTrainWithSgd) {
  run_ranks(4,
            [](comm::World& world) {
              train_large_model(world, limited_config({{"type", "SGD"},
                                                       {"params", {{"lr", 1e-3}, {"weight_decay", 0.0}}}}));
            },
            {.hang_limit = std::chrono::seconds(180)});
}

TEST_F(MemoryLimit, LetsEightRanksTrainWithAdam) {
  run_ranks(8, [](comm::World& world) { train_large_model(world, limited_config(kLimitedAdam)); },
            {.hang_limit = std::chrono::seconds(180)});
}

// Each of four ranks holds a quarter of the weights and a quarter of their gradients, and Adam adds two.
TEST_F(MemoryLimit, LetsFourRanksTrainWithAdamWhoseStatesAreOnADisk) {
  const TemporaryFolder folder;
  Json config = limited_config(kLimitedAdam);
  config["zero_optimization"]["sub_group_size"] = 1 << 20;
  config["zero_optimization"]["offload_optimizer"] = {{"device", "nvme"}, {"nvme_path", folder.string()}};
  run_ranks(4, [&](comm::World& world) { train_large_model(world, config); },
            {.hang_limit = std::chrono::seconds(180)});
}

TEST_F(MemoryLimit, EndsTheFirstStepOfFourRanksWithAdamInMemory) {
  run_ranks(4,
            [](comm::World& world) {
              world.group().barrier();
              limit_memory(kLimit);
              const Json config = limited_config(kLimitedAdam);
              const auto model = built_large_model(world, config);
              const auto engine = initialize(model, {.config = config, .world = world}).engine;
              engine->backward(engine->forward(at::ones({2, LargeMlp::kWidth})));
              EXPECT_ANY_THROW(engine->step());
            },
            {.hang_limit = std::chrono::seconds(180)});
}

TEST_F(MemoryLimit, LetsOneRankBuildAndEvaluateParametersFromADisk) {
  const TemporaryFolder folder;
  Json config = limited_config({});
  config.erase("optimizer");
  const auto evaluate = [&](const char* device) {
    run_ranks(1, [&](comm::World& world) {
      config["zero_optimization"]["offload_param"] = {
          {"device", device}, {"nvme_path", folder.string()}, {"max_in_cpu", 0}, {"buffer_count", 2}};
      limit_memory(LargeMlp::kBytes / 2);
      if (device == std::string("cpu")) {
        EXPECT_ANY_THROW(built_large_model(world, config));
        return;
      }
      const auto model = built_large_model(world, config);
      const auto engine = initialize(model, {.config = config, .world = world}).engine;
      engine->eval();
      const c10::NoGradGuard no_grad;
      const double loss = engine->forward(at::ones({2, LargeMlp::kWidth})).item<double>();
      EXPECT_GT(loss, 0.0);
      EXPECT_EQ(engine->forward(at::ones({2, LargeMlp::kWidth})).item<double>(), loss);
    });
  };
  evaluate("cpu");
  evaluate("nvme");
}

TEST_F(MemoryLimit, LeavesParametersPartitionedWhenDestroyWouldMakeThemWhole) {
  run_ranks(4, [](comm::World& world) {
    Json config = limited_config({});
    config.erase("optimizer");
    world.group().barrier();
    limit_memory(kLimit);
    const auto model = built_large_model(world, config);
    const auto engine = initialize(model, {.config = config, .world = world}).engine;
    const c10::NoGradGuard no_grad;
    const double loss = engine->forward(at::ones({2, LargeMlp::kWidth})).item<double>();
    EXPECT_THAT(error_of<UsageError>([&] { engine->destroy(); }),
                AllOf(HasSubstr("takes 268435456 bytes"), HasSubstr("keep_partitioned")));
    EXPECT_EQ(engine->forward(at::ones({2, LargeMlp::kWidth})).item<double>(), loss);
    engine->destroy({.keep_partitioned = true});
    EXPECT_EQ(engine->forward(at::ones({2, LargeMlp::kWidth})).item<double>(), loss);
  });
}

}  // namespace
}  // namespace deepspeed::testing
