// What a program changes of its model after initialize() and training does not follow is said, once.
#include <memory>
#include <string>

#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"

#include "tests/engine/make_engine.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Body : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(7, 6))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(6, 5))};
  at::Tensor forward(const at::Tensor& x) { return out(in(x)); }
};
struct Net : torch::nn::Module {
  std::shared_ptr<Body> body = register_module("body", std::make_shared<Body>());
  at::Tensor forward(const at::Tensor& x) { return body->forward(x); }
};

class ModelChanges : public ::testing::TestWithParam<int> {
 protected:
  void start(const std::shared_ptr<Net>& model) {
    const Json config = basic({{"log_level", "warning"}, {"zero_optimization", {{"stage", GetParam()}}}});
    engine_ = initialize(model, {.config = config}).engine;
  }

  /// The log of a step.
  std::string step() {
    ::testing::internal::CaptureStderr();
    const auto [inputs, targets] = odd_batch(0, 4);
    engine_->backward(at::mse_loss(engine_->forward(inputs), targets));
    engine_->step();
    return ::testing::internal::GetCapturedStderr();
  }

  std::shared_ptr<DeepSpeedEngine<Net>> engine_;
};
INSTANTIATE_TEST_SUITE_P(Stages, ModelChanges, ::testing::Values(0, 1, 2, 3));

TEST_P(ModelChanges, NameAReplacedModuleOnce) {
  const auto model = std::make_shared<Net>();
  start(model);
  EXPECT_EQ(step(), "");
  model->body->out = model->body->replace_module("out", torch::nn::Linear(6, 5));
  EXPECT_THAT(step(), AllOf(HasSubstr("'body.out.weight' and 1 other"),
                            HasSubstr("registered after initialize()"), HasSubstr("not trained")));
  EXPECT_EQ(step(), "");
  model->body->register_module("more", torch::nn::Linear(2, 2));
  EXPECT_THAT(step(), AllOf(HasSubstr("'body.more.weight'"), Not(HasSubstr("body.out"))));
}

TEST_P(ModelChanges, NameAParameterUnfrozenLaterOnce) {
  const auto model = std::make_shared<Net>();
  model->body->in->bias.set_requires_grad(false);
  start(model);
  EXPECT_EQ(step(), "");
  model->body->in->bias.set_requires_grad(true);
  EXPECT_THAT(step(), AllOf(HasSubstr("parameter 'body.in.bias' was unfrozen"), HasSubstr("not trained")));
  EXPECT_EQ(step(), "");
}

TEST_P(ModelChanges, NameAParameterFrozenLaterOnce) {
  const auto model = std::make_shared<Net>();
  start(model);
  EXPECT_EQ(step(), "");
  model->body->in->bias.set_requires_grad(false);
  EXPECT_THAT(step(),
              AllOf(HasSubstr("parameter 'body.in.bias' was frozen"), HasSubstr("goes on moving it")));
  EXPECT_EQ(step(), "");
}

}  // namespace
}  // namespace deepspeed::testing
