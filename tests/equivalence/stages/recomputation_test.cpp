// Models that run parts of their forward again in backward, as activation checkpointing does: every stage
// trains them as it trains the plain model, weights that several such parts share included.
#include <functional>
#include <memory>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class_detail.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Part = std::function<at::Tensor(const at::Tensor&)>;

/// Keeps a part's input alone, and runs the part again in a backward of its own.
class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Part& part) {
    context->save_for_backward({x});
    context->saved_data["part"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(part));
    const at::NoGradGuard no_grad;
    return part(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(context->saved_data["part"].toCapsule());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const at::AutoGradMode with_grad(true);
    torch::autograd::backward({held->part(x)}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }

 private:
  struct Held : torch::CustomClassHolder {
    explicit Held(Part part) : part(std::move(part)) {}
    Part part;
  };
};

class Residuals : public torch::nn::Module {
 public:
  static constexpr int64_t kWidth = 9;

  explicit Residuals(bool recomputes, bool shares) : recomputes_(recomputes), shares_(shares) {
    first_ = register_module("first", torch::nn::Linear(5, kWidth));
    for (int layer = 0; layer < 3; ++layer) {
      up_.push_back(register_module(message("up", layer), torch::nn::Linear(kWidth, 2 * kWidth)));
      down_.push_back(register_module(message("down", layer), torch::nn::Linear(2 * kWidth, kWidth)));
    }
    shared_ = register_module("shared", torch::nn::Linear(kWidth, kWidth));
    last_ = register_module("last", torch::nn::Linear(kWidth, 3));
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& target) {
    at::Tensor x = first_->forward(input);
    if (shares_) x = x + shared_->forward(x);
    for (size_t layer = 0; layer < up_.size(); ++layer) {
      const Part part = [this, layer](const at::Tensor& y) {
        const at::Tensor inner = shares_ ? shared_->forward(y) : y;
        return y + down_[layer]->forward(up_[layer]->forward(inner).tanh());
      };
      x = recomputes_ ? Recompute::apply(x, part) : part(x);
    }
    return at::mse_loss(last_->forward(x), target);
  }

 private:
  bool recomputes_, shares_;
  torch::nn::Linear first_{nullptr}, shared_{nullptr}, last_{nullptr};
  std::vector<torch::nn::Linear> up_, down_;
};

const Json kAhead = {{"device", "cpu"}, {"super_offload", true}};

struct Result {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
};

Result train(const comm::World& world, bool recomputes, bool shares, const Json& zero, const Json& patch,
             bool direct_backward = false) {
  torch::manual_seed(4);
  auto model = std::make_shared<Residuals>(recomputes, shares);
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_accumulation_steps", 2},
                 {"log_level", "error"},
                 {"zero_optimization", {{"reduce_bucket_size", 150}}},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.02}}}}}};
  config["zero_optimization"].update(zero);
  if (zero["stage"] == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 10;
  config.merge_patch(patch);
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  const auto type = patch.contains("bf16") ? at::kBFloat16 : at::kFloat;
  Result result;
  for (int step = 0; step < 8; ++step) {
    torch::manual_seed(100 * step + world.rank());
    const at::Tensor input = at::randn({2, 5}).to(type), target = at::randn({2, 3}).to(type);
    const at::Tensor loss = engine->forward(input, target);
    if (direct_backward) {
      loss.backward();
    } else {
      engine->backward(loss);
    }
    engine->step();
    result.losses.push_back(loss.template item<double>());
  }
  for (const at::Tensor& param : model->parameters())
    result.weights.push_back(safe_get_full_fp32_param(*engine, param));
  return result;
}

void expect_same(const Result& seen, const Result& expected, const std::string& what) {
  EXPECT_EQ(seen.losses, expected.losses) << what;
  for (size_t index = 0; index < expected.weights.size(); ++index)
    EXPECT_TRUE(seen.weights[index].equal(expected.weights[index])) << what << ", parameter " << index;
}

class Recomputation : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Recomputation, ::testing::Values(1, 2, 4));

TEST_P(Recomputation, TrainsAsThePlainModelAtEveryStage) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    for (const Json& patch : {Json::object(), Json{{"bf16", {{"enabled", true}}}}}) {
      for (const int stage : {1, 2, 3}) {
        const Json zero = {{"stage", stage}};
        const Result expected = train(world, false, false, zero, patch);
        expect_same(train(world, true, false, zero, patch), expected, message("stage ", stage, " ", patch));
      }
      const Json offloaded = {{"stage", 3},
                              {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", folder.string()}}},
                              {"offload_param", {{"device", "cpu"}}}};
      expect_same(train(world, true, false, offloaded, patch),
                  train(world, false, false, {{"stage", 3}}, patch), message("offloaded ", patch));
      Json unclipped = patch;
      unclipped["gradient_clipping"] = 0.0;
      expect_same(train(world, true, false, {{"stage", 3}, {"offload_optimizer", kAhead}}, unclipped),
                  train(world, false, false, {{"stage", 3}}, unclipped), message("super_offload ", patch));
    }
  });
}

/// The shared weight's gradients come at the end of each part's own backward: a sum over the ranks each, of
/// which the order of additions differs from stage to stage.
TEST_P(Recomputation, IsTheSameAtEveryStageForPartsThatShareAWeight) {
  run_ranks(GetParam(), [&](comm::World& world) {
    const Result plain = train(world, false, true, {{"stage", 1}}, Json::object());
    const auto expect_near = [&](const Result& seen, const std::string& what) {
      for (size_t step = 0; step < plain.losses.size(); ++step)
        EXPECT_NEAR(seen.losses.at(step), plain.losses[step], 1e-5 * plain.losses[step]) << what;
      for (size_t index = 0; index < plain.weights.size(); ++index)
        EXPECT_TRUE(at::allclose(seen.weights[index], plain.weights[index], 1e-4, 1e-4)) << what << index;
    };
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool direct : {false, true})
        expect_near(train(world, true, true, {{"stage", stage}}, Json::object(), direct),
                    message("stage ", stage, direct));
    }
    for (const int stage : {0, 1, 2}) {
      for (const int64_t bucket : {1, 150}) {
        expect_near(
            train(world, true, true,
                  {{"stage", stage}, {"overlap_comm", true}, {"reduce_bucket_size", bucket}}, Json::object()),
            message("overlapped, stage ", stage, " bucket ", bucket));
      }
    }
    expect_near(train(world, true, true, {{"stage", 3}, {"contiguous_gradients", false}}, Json::object()),
                "one by one");
    expect_near(
        train(world, true, true, {{"stage", 3}, {"offload_optimizer", {{"device", "cpu"}}}}, Json::object()),
        "cpu");
  });
}

TEST(RecomputationWithSuperOffload, NamesTheWayOutForPartsThatShareAWeight) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {2, 3}) {
      EXPECT_THAT(error_of<UsageError>([&] {
                    train(world, true, true, {{"stage", stage}, {"offload_optimizer", kAhead}},
                          {{"gradient_clipping", 0.0}});
                  }),
                  AllOf(HasSubstr("'shared."), HasSubstr("super_offload to false")));
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
