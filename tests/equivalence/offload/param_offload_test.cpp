// Parameters of stage 3 that lie in the host's memory or on a disk: evaluation and training are those of
// parameters on the device, to the last bit.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/load_weights.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitizer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Returns a config with offload_param and the keys that it needs. Blocks on a disk are the smallest, so that
/// every matrix of the small models goes there.
Json with_params_in(const std::string& device, const std::string& folder, Json patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"aio", {{"block_size", 4096}}},
                 {"log_level", "error"},
                 {"zero_optimization",
                  {{"stage", 3},
                   {"stage3_param_persistence_threshold", 100},
                   {"stage3_gather_16bit_weights_on_model_save", true},
                   {"offload_param",
                    {{"device", device},
                     {"nvme_path", folder},
                     {"max_in_cpu", 0},
                     {"buffer_count", 3},
                     {"buffer_size", 70'000}}}}}};
  if (device != "nvme") {
    config.erase("aio");
    config["zero_optimization"]["offload_param"] = {{"device", device}};
  }
  config.merge_patch(patch);
  return config;
}

std::shared_ptr<TinyGPT> some_gpt(uint64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<TinyGPT>(
      TinyGPTConfig{.vocabulary = 128, .context = 8, .width = 64, .layers = 3, .heads = 4});
}

at::Tensor tiny_loss(TinyGPT& model, int64_t batch) {
  const at::Tensor tokens = at::arange(18, at::kLong).mul(7 + batch).remainder(128).view({2, 9});
  return model.forward(tokens.narrow(1, 0, 8), tokens.narrow(1, 1, 8));
}

at::Tensor engine_loss(DeepSpeedEngine<TinyGPT>& engine, int64_t batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::arange(18, at::kLong).mul(7 + batch).remainder(128).view({2, 9});
  return engine.forward(tokens.narrow(1, 0, 8), tokens.narrow(1, 1, 8));
}

auto tiny_engine(comm::World& world, const Json& config, uint64_t seed) {
  auto engine = initialize(some_gpt(seed), {.config = config, .world = world}).engine;
  engine->eval();
  return engine;
}

class ParamOffload : public ::testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  Json config(Json patch = Json::object()) const {
    return with_params_in(std::get<1>(GetParam()), folder_.string(), std::move(patch));
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Matrix, ParamOffload,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values("cpu", "nvme")));

TEST_P(ParamOffload, EvaluatesAsTheWholeModel) {
  run_ranks(ranks(), [&](comm::World& world) {
    for (const char* precision : {"", "bf16"}) {
      Json patch = Json::object();
      if (*precision != 0) patch[precision] = {{"enabled", true}};
      const auto whole = tiny_engine(
          world, {{"train_micro_batch_size_per_gpu", 2}, {"bf16", {{"enabled", *precision != 0}}}}, 3);
      const auto engine = tiny_engine(world, config(patch), 3);
      for (int64_t pass = 0; pass < 3; ++pass) {
        EXPECT_TRUE(at::equal(engine_loss(*engine, pass), engine_loss(*whole, pass))) << precision << pass;
        const at::NoGradGuard no_grad;
        const zero::ParameterAccess access(engine->module().parameters());
        EXPECT_TRUE(at::equal(tiny_loss(engine->module(), pass), tiny_loss(whole->module(), pass)));
      }
    }
  });
}

TEST_P(ParamOffload, EvaluatesUnderAutocastAsTheWholeModel) {
  run_ranks(ranks(), [&](comm::World& world) {
    const Json autocast = {{"torch_autocast", {{"enabled", true}, {"dtype", "bf16"}}}};
    Json plain = autocast;
    plain["train_micro_batch_size_per_gpu"] = 2;
    const auto whole = tiny_engine(world, plain, 3);
    const auto engine = tiny_engine(world, config(autocast), 3);
    for (int64_t pass = 0; pass < 3; ++pass)
      EXPECT_TRUE(at::equal(engine_loss(*engine, pass), engine_loss(*whole, pass))) << pass;
  });
}

TEST_P(ParamOffload, TakesWeightsFromOutside) {
  run_ranks(ranks(), [&](comm::World& world) {
    const auto other = some_gpt(11);
    const auto engine = tiny_engine(world, config(), 3);
    engine_loss(*engine, 0);  // what was read ahead since is stale
    std::vector<NamedTensor> state;
    for (const auto& item : other->named_parameters()) state.push_back({item.key(), item.value().detach()});
    engine->load_module_state_dict(state);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(engine_loss(*engine, 1), tiny_loss(*other, 1)));
    {
      const zero::GatheredParameters gathered(engine->module().parameters(), 0);
      for (const at::Tensor& param : engine->module().parameters()) {
        if (world.rank() == 0) param.detach().mul_(0.5);
      }
    }
    for (const at::Tensor& param : other->parameters()) param.detach().mul_(0.5);
    EXPECT_TRUE(at::equal(engine_loss(*engine, 2), tiny_loss(*other, 2)));
    engine->save_16bit_model(folder_.string());
    const auto loaded = tiny_engine(world, config(), 5);
    load_weights(*loaded, folder_ / "pytorch_model.bin");
    EXPECT_TRUE(at::equal(engine_loss(*loaded, 2), tiny_loss(*other, 2)));
  });
}

TEST_P(ParamOffload, LoadsCheckpointsOfATraining) {
  run_ranks(ranks(), [&](comm::World& world) {
    for (const int stage : {1, 3}) {
      const Json training = {{"train_micro_batch_size_per_gpu", 2},
                             {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                             {"zero_optimization", {{"stage", stage}}}};
      const auto trained = initialize(some_gpt(3), {.config = training, .world = world}).engine;
      trained->backward(trained->forward(at::arange(8).view({1, 8}), at::arange(1, 9).view({1, 8})));
      trained->step();
      const std::string saved = folder_ / std::to_string(stage);
      trained->save_checkpoint(saved);
      const auto engine = tiny_engine(world, config(), 5);
      EXPECT_FALSE(engine->load_checkpoint(saved, {.load_module_only = true}).path.empty());
      trained->eval();
      EXPECT_TRUE(at::equal(engine_loss(*engine, 1), engine_loss(*trained, 1))) << stage;
    }
  });
}

class ParamsInHost : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ParamsInHost, ::testing::Values(1, 2, 3, 4));

TEST_P(ParamsInHost, TrainAsOnTheDevice) {
  for (const char* precision : {"", "bf16"}) {
    Json config = {{"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 13}}}};
    if (*precision != 0) config[precision] = {{"enabled", true}};
    const TrainingResult reference = run_training({.world_size = GetParam(), .config = config});
    ASSERT_FALSE(reference.weights.empty());
    config["zero_optimization"]["offload_param"] = {{"device", "cpu"}};
    for (const char* optimizer : {"none", "cpu"}) {
      config["zero_optimization"]["offload_optimizer"] = {{"device", optimizer}};
      const TrainingResult result = run_training({.world_size = GetParam(), .config = config});
      EXPECT_EQ(result.weights, reference.weights) << precision << " " << optimizer;
      EXPECT_EQ(result.losses, reference.losses) << precision << " " << optimizer;
    }
  }
}

/// Layers one after the other, each larger than what passes between them.
class Deep : public torch::nn::Module {
 public:
  static constexpr int64_t kWidth = 512;
  static constexpr int64_t kLayers = 48;
  static constexpr int64_t kLayerBytes = kWidth * kWidth * 4;

  Deep() {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      layers_.push_back(register_module(
          std::to_string(layer), torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers_) x = layer->forward(x).relu();
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

Json deep_config(const std::string& folder) {
  return with_params_in("nvme", folder,
                        {{"zero_optimization",
                          {{"stage3_max_live_parameters", 2 * Deep::kWidth * Deep::kWidth},
                           {"stage3_prefetch_bucket_size", Deep::kWidth * Deep::kWidth},
                           {"stage3_max_reuse_distance", 0},
                           {"offload_param", {{"buffer_count", 2}, {"buffer_size", 300'000}}}}}});
}

TEST(ParamsOnDisk, LeaveTheBuffersAndWhatIsInUseInMemory) {
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    run_ranks(ranks, [&](comm::World& world) {
      const AllocationCounter counter;
      const auto engine =
          initialize(std::make_shared<Deep>(), {.config = deep_config(folder.string()), .world = world})
              .engine;
      engine->eval();
      const int64_t pages = 2 * 4096;  // to align the buffers
      const int64_t messages = 1024;   // that threads of the backend let go of a moment later
      const int64_t buffers = 2 * Deep::kLayerBytes / world.size() + pages + messages;
      EXPECT_LE(counter.live_bytes(), buffers);
      const int64_t before = counter.live_bytes();
      const at::Tensor x = at::ones({1, Deep::kWidth});
      int64_t largest = 0;
      const at::NoGradGuard no_grad;
      for (int pass = 0; pass < 3; ++pass) {
        engine->forward(x);
        largest = std::max(largest, counter.live_bytes());
      }
      EXPECT_LE(largest, before + pages) << "what was gathered goes at the end of a pass";
    });
  }
}

/// Bytes of the process that RLIMIT_DATA counts.
int64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) return std::stoll(line.substr(7)) * 1024;
  }
  throw std::runtime_error("/proc/self/status has no VmData");
}

TEST(ParamsOnDisk, EvaluateAModelThatIsLargerThanTheMemory) {
  if (testing::has_address_sanitizer())
    GTEST_SKIP() << "AddressSanitizer's own memory counts against the limit";
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    run_ranks(ranks, [&](comm::World& world) {
      torch::manual_seed(1);
      const auto model = std::make_shared<Deep>();
      const at::Tensor x = at::ones({1, Deep::kWidth});
      const at::NoGradGuard no_grad;
      const at::Tensor expected = model->forward(x);
      const auto engine = initialize(model, {.config = deep_config(folder.string()), .world = world}).engine;
      engine->eval();
      engine->forward(x);  // the first pass starts threads, and makes what a process makes once
      // From here on there is room for half of the model.
      rlimit limit{};
      ASSERT_EQ(::getrlimit(RLIMIT_DATA, &limit), 0);
      const rlim_t former = limit.rlim_cur;
      limit.rlim_cur = data_bytes() + Deep::kLayers * Deep::kLayerBytes / 2;
      ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
      EXPECT_ANY_THROW(at::empty({Deep::kLayers * Deep::kWidth * Deep::kWidth}));
      for (int pass = 0; pass < 3; ++pass) EXPECT_TRUE(at::equal(engine->forward(x), expected));
      limit.rlim_cur = former;
      ::setrlimit(RLIMIT_DATA, &limit);
    });
  }
}

TEST(ParamsOnDisk, NeedADiskOnEveryRank) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.string().c_str(), "tmpfs", 0, "size=100k") != 0)
    GTEST_SKIP() << "a tmpfs cannot be mounted";
  run_ranks(2, [&](comm::World& world) {
    const Json config = with_params_in("nvme", folder.string());
    EXPECT_THAT(error_of<IoError>([&] { tiny_engine(world, config, 3); }),
                AllOf(HasSubstr("offload_param.nvme_path"), HasSubstr("has no room for")));
  });
  ::umount2(folder.string().c_str(), MNT_DETACH);
  run_ranks(3, [](comm::World& world) {
    const Json config = with_params_in("nvme", world.rank() == 1 ? "/proc/none" : "/tmp");
    EXPECT_THAT(error_of<IoError>([&] { tiny_engine(world, config, 3); }),
                AllOf(HasSubstr("cannot make a file"), HasSubstr("/proc/none")));
  });
}

}  // namespace
}  // namespace deepspeed::testing
