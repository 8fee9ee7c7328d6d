// Parameters in fp64, alone and beside fp32: they are trained in it at every stage.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/offload/offload_configs.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// fp64, then fp32, then fp64; or all in fp64.
class MixedNet : public torch::nn::Module {
 public:
  explicit MixedNet(at::ScalarType middle = at::kFloat) {
    in_ = register_module("in", torch::nn::Linear(7, 9));
    middle_ = register_module("middle", torch::nn::Linear(9, 5));
    out_ = register_module("out", torch::nn::Linear(5, 3));
    in_->to(at::kDouble);
    middle_->to(middle);
    out_->to(at::kDouble);
    const c10::NoGradGuard no_grad;
    int64_t start = 0;
    for (at::Tensor& param : parameters()) {
      const at::Tensor values = at::sin(at::arange(start, start + param.numel(), at::kDouble)).mul_(0.3);
      param.copy_(values.view(param.sizes()));
      start += param.numel();
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::tanh(in_(x)).to(middle_->weight.scalar_type());
    return out_(at::tanh(middle_(hidden)).to(at::kDouble));
  }

 private:
  torch::nn::Linear in_{nullptr}, middle_{nullptr}, out_{nullptr};
};

at::Tensor inputs_of(int64_t step, int rank) {
  return at::sin(at::arange(28, at::kDouble).add_(double(28 * step) + 0.5 * rank)).view({4, 7});
}

template <class Engine>
void train_steps(Engine& engine, int64_t first, int64_t end) {
  for (int64_t step = first; step < end; ++step) {
    const at::Tensor x = inputs_of(step, engine.rank());
    engine.backward(at::mse_loss(engine.forward(x), x.narrow(1, 0, 3)));
    engine.step();
  }
}

std::string weights_of(const torch::nn::Module& model) {
  const zero::GatheredParameters gathered(model.parameters());
  std::string bytes;
  for (const at::Tensor& param : model.parameters()) {
    const at::Tensor values = param.detach().to(at::kDouble).contiguous();
    bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  return bytes;
}

std::vector<double> numbers_of(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

double largest_difference_of(const std::string& one, const std::string& other) {
  const auto a = numbers_of(one), b = numbers_of(other);
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

Json with_optimizer_of(const char* type, Json config) {
  config["train_micro_batch_size_per_gpu"] = 4;
  config["gradient_clipping"] = 0.0;
  config["zero_allow_untested_optimizer"] = true;
  config["optimizer"] = {{"type", type}, {"params", {{"lr", 0.01}, {"weight_decay", 0.01}}}};
  return config;
}

std::shared_ptr<DeepSpeedEngine<MixedNet>> engine_of(const Json& config, const comm::World& world,
                                                     at::ScalarType middle = at::kFloat) {
  return initialize(std::make_shared<MixedNet>(middle), {.config = config, .world = world}).engine;
}

/// The weights after four steps of two ranks.
std::string trained(const Json& config, at::ScalarType middle = at::kFloat) {
  return run_ranks_collect(2, [&](comm::World& world) {
    const auto engine = engine_of(config, world, middle);
    train_steps(*engine, 0, 4);
    return weights_of(engine->module());
  })[1];
}

std::vector<Json> all_places(const std::string& folder) {
  std::vector<Json> configs;
  for (const int stage : {1, 2, 3}) {
    configs.push_back(sliced_at_stage(stage));
    configs.push_back(on_cpu(sliced_at_stage(stage)));
    configs.push_back(on_disk(sliced_at_stage(stage), folder));
  }
  for (const char* device : {"cpu", "nvme"}) {
    Json config = on_cpu(sliced_at_stage(3));
    config["zero_optimization"]["offload_param"] = {{"device", device}, {"nvme_path", folder}};
    configs.push_back(config);
  }
  return configs;
}

class DoublesWith : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, DoublesWith, ::testing::Values("AdamW", "SGD", "RMSprop"));

TEST_P(DoublesWith, AreBitEqualAtEveryStageAndInEveryPlace) {
  const TemporaryFolder folder;
  const std::string reference = trained(with_optimizer_of(GetParam(), sliced_at_stage(0)));
  ASSERT_FALSE(reference.empty());
  for (const Json& config : all_places(folder.string())) {
    EXPECT_EQ(trained(with_optimizer_of(GetParam(), config)), reference) << config;
  }
}

TEST(Doubles, TrainWithEveryOptimizerAtEveryStage) {
  for (const char* type : {"Adagrad", "Lion", "Lamb", "Muon"}) {
    const std::string reference = trained(with_optimizer_of(type, sliced_at_stage(0)));
    for (const int stage : {1, 3}) {
      const std::string result = trained(with_optimizer_of(type, sliced_at_stage(stage)));
      // The norms of Lamb are added up in another order.
      EXPECT_LT(largest_difference_of(result, reference), 1e-12) << type << " at stage " << stage;
    }
  }
}

TEST(Doubles, AreComputedAsTorchComputesThem) {
  run_ranks(1, [](comm::World& world) {
    const Json config = with_optimizer_of("AdamW", sliced_at_stage(0));
    const auto engine = engine_of(config, world, at::kDouble);
    train_steps(*engine, 0, 6);
    MixedNet model(at::kDouble);
    torch::optim::AdamW adamw(model.parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.01));
    for (int64_t step = 0; step < 6; ++step) {
      const at::Tensor x = inputs_of(step, 0);
      adamw.zero_grad();
      at::mse_loss(model.forward(x), x.narrow(1, 0, 3)).backward();
      adamw.step();
    }
    EXPECT_LT(largest_difference_of(weights_of(engine->module()), weights_of(model)), 1e-14);
  });
}

TEST(Doubles, TrainBesideFloatsWithATorchOptimizer) {
  run_ranks(1, [](comm::World& world) {
    std::string reference;
    for (const int stage : {0, 2, 3}) {
      const auto model = std::make_shared<MixedNet>();
      const auto adamw =
          std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(0.01));
      Json config =
          sliced_at_stage(stage, {{"train_micro_batch_size_per_gpu", 4}, {"gradient_clipping", 0.0}});
      const auto engine = initialize(model, {.config = config, .optimizer = adamw, .world = world}).engine;
      train_steps(*engine, 0, 3);
      if (reference.empty()) reference = weights_of(*model);
      EXPECT_EQ(weights_of(*model), reference) << stage;
    }
  });
}

TEST(Doubles, ResumeFromACheckpointAtAnyStage) {
  for (const auto& [from, to] : {std::pair{0, 0}, std::pair{1, 3}, std::pair{3, 2}, std::pair{2, 1}}) {
    SCOPED_TRACE(message(from, " to ", to));
    const TemporaryFolder folder;
    const auto config_at = [&](int stage) { return with_optimizer_of("AdamW", sliced_at_stage(stage)); };
    const std::string expected = trained(config_at(0));
    run_ranks(2, [&](comm::World& world) {
      const auto engine = engine_of(config_at(from), world);
      train_steps(*engine, 0, 2);
      engine->save_checkpoint(folder.string());
    });
    const auto resumed = run_ranks_collect(2, [&](comm::World& world) {
      const auto engine = engine_of(config_at(to), world);
      engine->load_checkpoint(folder.string());
      const at::Tensor weight = engine->module().parameters().front();
      EXPECT_EQ(safe_get_full_fp32_param(*engine, weight).scalar_type(), at::kDouble);
      EXPECT_EQ(safe_get_full_optimizer_state(*engine, weight, "exp_avg").scalar_type(), at::kDouble);
      train_steps(*engine, 2, 4);
      return weights_of(engine->module());
    });
    EXPECT_EQ(resumed[0], expected);
  }
}

TEST(Doubles, AreCastIfTheConfigCastsTheModel) {
  run_ranks(1, [](comm::World& world) {
    for (const int stage : {0, 3}) {
      Json config = with_optimizer_of("AdamW", sliced_at_stage(stage));
      config["bf16"] = {{"enabled", true}};
      for (const at::Tensor& param : engine_of(config, world)->module().parameters())
        EXPECT_EQ(param.scalar_type(), at::kBFloat16);
    }
  });
}

TEST(Doubles, AreNamedIfTheyAreNotFinite) {
  for (const int stage : {0, 2, 3}) {
    run_ranks(2, [&](comm::World& world) {
      Json config = with_optimizer_of("AdamW", sliced_at_stage(stage, {{"log_level", "warning"}}));
      config["gradient_clipping"] = 1.0;
      const auto engine = engine_of(config, world);
      ::testing::internal::CaptureStderr();
      const at::Tensor x = inputs_of(0, world.rank());
      engine->backward(at::mse_loss(engine->forward(x), x.narrow(1, 0, 3).mul(1e300)));
      engine->step();
      const std::string lines = ::testing::internal::GetCapturedStderr();
      EXPECT_FALSE(engine->was_step_applied());
      if (world.rank() == 0) {
        EXPECT_THAT(lines, AllOf(HasSubstr("is skipped"), HasSubstr("the gradient of '")));
      }
    });
  }
}

TEST(Doubles, RefuseWhatHasNoKernelForThem) {
  run_ranks(1, [](comm::World& world) {
    Json narrow = with_optimizer_of("AdamW", sliced_at_stage(1));
    narrow["optimizer"]["params"]["moment_dtype"] = "bf16";
    EXPECT_THAT(error_of<UsageError>([&] { engine_of(narrow, world); }),
                AllOf(HasSubstr("BFloat16"), HasSubstr("Double")));
    Json ahead = on_cpu(with_optimizer_of("AdamW", sliced_at_stage(2)));
    ahead["zero_optimization"]["offload_optimizer"]["super_offload"] = true;
    EXPECT_THAT(error_of<UsageError>([&] { engine_of(ahead, world); }),
                AllOf(HasSubstr("super_offload to false"), HasSubstr("Double")));
  });
}

TEST(ComplexParameters, AreRefusedWithTheWayOut) {
  struct Rotation : torch::nn::Module {
    at::Tensor phase = register_parameter("phase", at::full({3}, 1.0, at::kComplexFloat));
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  run_ranks(1, [](comm::World& world) {
    for (const int stage : {0, 1, 3}) {
      const auto error = error_of<UsageError>([&] {
        initialize(std::make_shared<Rotation>(),
                   {.config = with_optimizer_of("AdamW", sliced_at_stage(stage)), .world = world});
      });
      EXPECT_THAT(error, AllOf(HasSubstr("'phase'"), HasSubstr("torch::view_as_real")));
    }
  });
}

TEST(ComplexParameters, TakeRankZerosValuesIfTheyAreFrozenOrBuffers) {
  struct Rotating : torch::nn::Module {
    explicit Rotating(double phase) {
      frozen = register_parameter("frozen", at::full({3}, phase, at::kComplexFloat), /*requires_grad=*/false);
      buffer = register_buffer("buffer", at::full({2}, phase, at::kComplexDouble));
    }
    at::Tensor forward(const at::Tensor& x) { return layer(x); }
    torch::nn::Linear layer{register_module("layer", torch::nn::Linear(2, 2))};
    at::Tensor frozen, buffer;
  };
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 2, 3}) {
      const auto model = std::make_shared<Rotating>(1.0 + world.rank());
      const Json config = with_optimizer_of("AdamW", sliced_at_stage(stage));
      const auto engine = initialize(model, {.config = config, .world = world}).engine;
      EXPECT_EQ(at::real(model->frozen).sum().item<double>(), 3.0);
      EXPECT_EQ(at::real(model->buffer).sum().item<double>(), 2.0);
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
