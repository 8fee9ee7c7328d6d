// Taking a step of Adam back.
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/adam.h"

#include "tests/kernels/adam_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

AdamTensors cloned(const AdamTensors& tensors) {
  AdamTensors copy{tensors.master.clone(), tensors.gradient, tensors.exp_avg.clone(),
                   tensors.exp_avg_sq.clone(), tensors.low_precision};
  if (copy.low_precision.defined()) copy.low_precision = copy.low_precision.clone();
  return copy;
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// Three steps, the third of which is made and taken back: what is left of it, in roundings of fp32.
void expect_taken_back(const Case& c, AdamStep step) {
  AdamTensors t = make_tensors(c, 21);
  const auto generator = at::detail::createCPUGenerator(22);
  for (step.step = 1; step.step <= 2; ++step.step) {
    t.gradient = at::randn({c.numel}, generator, at::kFloat).to(c.gradient);
    adam(t, step);
  }
  const AdamTensors before = cloned(t);
  t.gradient = at::randn({c.numel}, generator, at::kFloat).to(c.gradient);
  adam(t, step);
  EXPECT_GT(difference(t.master, before.master), step.lr / 2);
  adam_rollback(t, step);
  constexpr double kUlp = 1.2e-7;
  EXPECT_LT(difference(t.master, before.master), 8 * kUlp);
  EXPECT_LT(difference(t.exp_avg, before.exp_avg), 4 * kUlp);
  EXPECT_LT(difference(t.exp_avg_sq, before.exp_avg_sq), 4 * kUlp);
  if (t.low_precision.defined()) {
    EXPECT_TRUE(at::equal(t.low_precision, t.master.to(c.copy)));
  }
}

TEST(AdamRollback, TakesAStepBackToWithinItsRoundings) {
  for (const bool adamw : {true, false}) {
    for (const bool bias_correction : {true, false}) {
      for (const auto gradient : gradients()) {
        AdamStep step = hyperparameters();
        step.adamw_mode = adamw;
        step.bias_correction = bias_correction;
        expect_taken_back({1003, gradient, at::kFloat, at::kBFloat16}, step);
      }
    }
  }
}

TEST(AdamRollback, GoesThroughALargeSizePieceByPiece) {
  expect_taken_back({(1 << 18) * 2 + 3, at::kFloat, at::kFloat, at::ScalarType::Undefined},
                    hyperparameters());
}

TEST(AdamRollback, LeavesNoMomentsOfAFirstStep) {
  AdamTensors t = make_tensors({65, at::kFloat, at::kFloat, at::ScalarType::Undefined}, 23);
  const at::Tensor before = t.master.clone();
  adam(t, hyperparameters());
  adam_rollback(t, hyperparameters());
  EXPECT_TRUE(t.exp_avg.eq(0).all().item<bool>());
  EXPECT_TRUE(t.exp_avg_sq.eq(0).all().item<bool>());
  EXPECT_LT(difference(t.master, before), 1e-6);
}

void expect_refused(const AdamTensors& tensors, const AdamStep& step, const std::string& part) {
  EXPECT_ERROR(UsageError, adam_rollback(tensors, step), part);
}

TEST(AdamRollback, RefusesAStepThatKeptNothingOfTheOldValues) {
  const AdamTensors t = make_tensors({8, at::kFloat, at::kFloat, at::ScalarType::Undefined}, 24);
  AdamStep step;
  step.beta1 = 0;
  expect_refused(t, step, "betas are 0");
  step = {};
  step.lr = 2;
  step.weight_decay = 0.5;
  expect_refused(t, step, "lr * weight_decay is 1");
  expect_refused(narrowed(make_tensors({8, at::kFloat, at::kFloat, at::kBFloat16}, 24), at::kBFloat16), {},
                 "master has dtype BFloat16");
  expect_refused(make_tensors({8, at::kFloat, at::kBFloat16, at::ScalarType::Undefined}, 24), {},
                 "exp_avg has dtype");
  step = {};
  step.step = 0;
  expect_refused(t, step, "step is 0");
}

}  // namespace
}  // namespace deepspeed::kernels
