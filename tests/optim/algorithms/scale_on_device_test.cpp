// Optimizers by a scale that comes as a tensor. It lies in host memory here, which kernels take too.
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/optim/factory.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

std::vector<std::pair<const char*, Json>> optimizers() {
  const Json lr = {{"lr", 0.01}};
  return {{"AdamW", lr},
          {"AdamW", {{"lr", 0.01}, {"moment_dtype", "bf16"}}},
          {"Adam", {{"lr", 0.01}, {"torch_adam", true}, {"amsgrad", true}}},
          {"Lion", lr},
          {"Adagrad", lr},
          {"SGD", lr},
          {"SGD", {{"lr", 0.01}, {"momentum", 0.9}, {"dampening", 0.5}}},
          {"Lamb", lr},
          {"Muon", lr},
          {"RMSprop", lr}};
}

std::unique_ptr<Optimizer> make(const char* type, const Json& params) {
  std::vector<ParamGroup> groups(1);
  groups[0].param_names = {"weight"};
  return make_optimizer(type, params, std::move(groups));
}

at::Tensor scale_tensor(double scale) { return at::full({}, scale, at::kDouble); }

TEST(ScaleOnDevice, TakesTheNumbersPlaceInEveryOptimizerThatSaysSo) {
  for (const auto& [type, params] : optimizers()) {
    SCOPED_TRACE(message(type, " ", params));
    const auto by_number = make(type, params), by_tensor = make(type, params);
    ASSERT_TRUE(by_tensor->takes_scale_on_device());
    const at::Tensor weights = test_gradients(1, {8, 6})[0];
    TestSlice expected(weights), seen(weights);
    for (const at::Tensor& gradient : test_gradients(3, {8, 6})) {
      expected.step(*by_number, gradient, 1 / 3.0);
      seen.slice.scale_on_device = scale_tensor(1 / 3.0);
      seen.step(*by_tensor, gradient, 17.0);
    }
    EXPECT_TRUE(at::equal(seen.slice.master, expected.slice.master));
  }
}

/// Expects that a step which is left out, the first one or a later one, leaves no trace.
void expect_no_trace(const char* type, const Json& params, int left_out) {
  SCOPED_TRACE(message(type, " ", params, " without step ", left_out));
  const auto without = make(type, params), with = make(type, params);
  ASSERT_TRUE(with->skips_on_device());
  const at::Tensor weights = test_gradients(1, {8, 6})[0];
  TestSlice expected(weights), seen(weights);
  seen.slice.low_precision = at::zeros({48}, at::kBFloat16);
  const auto gradients = test_gradients(4, {8, 6});
  for (int i = 0; i < 4; ++i) {
    if (i != left_out) expected.step(*without, gradients[size_t(i)]);
    const at::Tensor before = seen.slice.master.clone(), copy = seen.slice.low_precision.clone();
    seen.slice.scale_on_device = scale_tensor(i == left_out ? NAN : 1.0);
    seen.step(*with, gradients[size_t(i)]);
    if (i != left_out) continue;
    EXPECT_TRUE(at::equal(seen.slice.master, before));
    EXPECT_TRUE(at::equal(seen.slice.low_precision, copy));
    with->forget_step(0);
    EXPECT_EQ(with->state(0).tensors.size(), without->state(0).tensors.size());
    EXPECT_EQ(with->state(0).step, without->state(0).step);
  }
  EXPECT_TRUE(at::equal(seen.slice.master, expected.slice.master));
  const SliceState state = with->state(0), other = without->state(0);
  ASSERT_EQ(state.tensors.size(), other.tensors.size());
  EXPECT_EQ(state.step, other.step);
  for (size_t i = 0; i < state.tensors.size(); ++i)
    EXPECT_TRUE(at::equal(state.tensors[i].second, other.tensors[i].second)) << state.tensors[i].first;
}

TEST(ScaleOnDevice, LeavesAStepOutIfItIsNotANumber) {
  for (const auto& [type, params] : optimizers()) {
    if (!make(type, params)->skips_on_device()) continue;
    for (const int left_out : {0, 1}) expect_no_trace(type, params, left_out);
  }
}

TEST(ScaleOnDevice, LeavesLoadedStatesOfNoStepIfTheFirstIsLeftOut) {
  for (const char* type : {"AdamW", "Lion", "SGD"}) {
    const Json params =
        type == std::string("SGD") ? Json{{"lr", 0.01}, {"momentum", 0.9}} : Json{{"lr", 0.01}};
    const auto first = make(type, params), second = make(type, params);
    const at::Tensor weights = test_gradients(1, {8, 6})[0];
    TestSlice slice(weights), other(weights);
    slice.step(*first, weights);
    SliceState loaded = first->state(0);
    loaded.step = 0;
    second->load_state(0, loaded);
    other.slice.scale_on_device = scale_tensor(NAN);
    other.step(*second, weights);
    second->forget_step(0);
    ASSERT_EQ(second->state(0).tensors.size(), loaded.tensors.size()) << type;
    EXPECT_TRUE(at::equal(second->state(0).tensors[0].second, loaded.tensors[0].second)) << type;
  }
}

TEST(ScaleOnDevice, IsForgottenOnlyByOptimizersThatSaySo) {
  const auto lamb = make("Lamb", {{"lr", 0.01}});
  EXPECT_FALSE(lamb->skips_on_device());
  EXPECT_ERROR(UsageError, lamb->forget_step(0), "Lamb does not leave out a step", "skips_on_device()");
}

TEST(ScaleOnDevice, IsRefusedByOptimizersThatExchangeCompressedValues) {
  for (const char* type : {"OneBitAdam", "OneBitLamb", "ZeroOneAdam"})
    EXPECT_FALSE(make(type, {{"lr", 0.01}})->takes_scale_on_device() ||
                 make(type, {{"lr", 0.01}})->skips_on_device())
        << type;
}

}  // namespace
}  // namespace deepspeed::optim
