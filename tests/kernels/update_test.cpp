#include "deepspeed/kernels/update.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/kernels/update_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

TEST(Update, GivesTheSameBitsOnEveryInstructionSetAndCut) {
  const SimdTargetGuard guard;
  for (const UpdateRule& rule : rules()) {
    for (const auto gradient : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const auto copy : {at::ScalarType::Undefined, at::kHalf, at::kBFloat16}) {
        const Arrays best = make(rule, 1003, gradient, copy);
        run(rule, best);
        for (const std::string& target : simd_targets()) {
          use_simd_target(target);
          const Arrays other = make(rule, 1003, gradient, copy);
          run(rule, other);
          expect_same_bits(best, other, message(target, " rule ", rule.index(), " "));
        }
        use_simd_target("");
        // Element by element: a vector's lanes do not see each other.
        const Arrays single = make(rule, 1003, gradient, copy);
        for (int64_t i = 0; i < 1003; i += 59) {
          Arrays one;
          one.master = single.master.narrow(0, i, 1);
          one.gradient = single.gradient.narrow(0, i, 1);
          if (copy != at::ScalarType::Undefined) one.low_precision = single.low_precision.narrow(0, i, 1);
          for (const auto& state : single.states) one.states.push_back(state.narrow(0, i, 1));
          run(rule, one);
          EXPECT_TRUE(at::equal(one.master, best.master.narrow(0, i, 1))) << i << " rule " << rule.index();
        }
      }
    }
  }
}

TEST(Update, GivesTheSameBitsWithOneTwoAndThreeThreads) {
  const SimdTargetGuard guard;
  for (const UpdateRule& rule : rules()) {
    at::set_num_threads(1);
    const Arrays one = make(rule, 100003, at::kFloat, at::kBFloat16);
    run(rule, one);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      const Arrays more = make(rule, 100003, at::kFloat, at::kBFloat16);
      run(rule, more);
      expect_same_bits(one, more, message(threads, " threads, rule ", rule.index(), " "));
    }
  }
}

TEST(Update, WritesTheArraysAndNothingBesideThem) {
  constexpr int64_t kMargin = 16;
  for (const UpdateRule& rule : rules()) {
    for (const int64_t numel : {0, 1, 7, 8, 65}) {
      const Arrays a = make(rule, numel, at::kFloat, at::kHalf, kMargin);
      const at::Tensor before = a.master.clone();
      run(rule, a);
      EXPECT_EQ(numel > 0 && writes_master(rule), !at::equal(a.master, before)) << rule.index();
      if (writes_master(rule)) {
        EXPECT_TRUE(at::equal(a.low_precision, a.master.to(at::kHalf))) << rule.index();
      }
      std::vector<at::Tensor> written = a.states;
      written.push_back(a.master);
      written.push_back(a.low_precision);
      for (const at::Tensor& inner : written) {
        const at::Tensor whole = inner.as_strided({numel + 2 * kMargin}, {1}, 0);
        EXPECT_TRUE(whole.narrow(0, 0, kMargin).eq(3.0).all().item<bool>()) << rule.index();
        EXPECT_TRUE(whole.narrow(0, kMargin + numel, kMargin).eq(3.0).all().item<bool>()) << rule.index();
      }
    }
  }
}

TEST(Update, LionLeavesWhatHasNoDirectionAndShowsNan) {
  LionRule rule;
  rule.beta1 = 0.9F, rule.one_minus_beta1 = 0.1F, rule.beta2 = 0.99F, rule.one_minus_beta2 = 0.01F,
  rule.lr = 0.5F;
  Arrays a;
  a.master = at::ones({4});
  a.gradient = at::tensor({0.0F, -0.0F, NAN, -1e-30F});
  a.states = {at::zeros({4})};
  run(rule, a);
  EXPECT_EQ(a.master[0].item<float>(), 1.0F);
  EXPECT_EQ(a.master[1].item<float>(), 1.0F);
  EXPECT_TRUE(std::isnan(a.master[2].item<float>()));
  EXPECT_EQ(a.master[3].item<float>(), 1.5F);
}

TEST(Update, IsComputedInDoubleForDoubles) {
  for (UpdateRule rule : rules()) {
    const Arrays narrow = make(rule, 1003, at::kFloat, at::ScalarType::Undefined);
    Arrays wide = {narrow.master.to(at::kDouble), narrow.gradient.to(at::kDouble), {}, {}};
    for (const at::Tensor& state : narrow.states) wide.states.push_back(state.to(at::kDouble));
    run(rule, narrow);
    run(rule, wide);
    EXPECT_TRUE(at::allclose(wide.master, narrow.master.to(at::kDouble), 1e-4, 1e-5)) << rule.index();
    const at::Tensor result = writes_master(rule) ? wide.master : wide.states.back();
    EXPECT_FALSE(at::equal(result, result.to(at::kFloat).to(at::kDouble))) << rule.index();
  }
}

TEST(Update, HasThePrecisionOfDoubles) {
  SgdRule rule;
  rule.gradient_scale = 1.0 / 3, rule.l2_decay = 0.1, rule.lr = 0.01;
  Arrays a = make(rule, 1003, at::kFloat, at::ScalarType::Undefined);
  a.master = a.master.to(at::kDouble), a.gradient = a.gradient.to(at::kDouble);
  const at::Tensor step = a.gradient.mul(1.0 / 3).add(a.master.mul(0.1)).mul(0.01);
  const at::Tensor expected = a.master.sub(step);
  run(rule, a);
  EXPECT_TRUE(at::equal(a.master, expected));
}

TEST(Update, GivesTheSameBitsForDoublesOnEveryInstructionSet) {
  const SimdTargetGuard guard;
  std::vector<UpdateRule> all = rules();
  AdamRule adam;
  adam.gradient_scale = 0.5, adam.l2_decay = 0.1, adam.beta1 = 0.9, adam.one_minus_beta1 = 0.1;
  adam.beta2 = 0.99, adam.one_minus_beta2 = 0.01, adam.eps = 1e-8, adam.step_size = 0.01;
  all.push_back(adam);
  for (const UpdateRule& rule : all) {
    const auto make_wide = [&] {
      Arrays a = make(rule, 1003, at::kDouble, at::ScalarType::Undefined);
      a.master = a.master.to(at::kDouble);
      for (at::Tensor& state : a.states) state = state.to(at::kDouble);
      return a;
    };
    const Arrays best = make_wide();
    run(rule, best);
    for (const std::string& target : simd_targets()) {
      use_simd_target(target);
      const Arrays other = make_wide();
      run(rule, other);
      expect_same_bits(best, other, message(target, " rule ", rule.index(), " "));
    }
    use_simd_target("");
  }
}

TEST(Update, TakesAScaleThatComesAsATensor) {
  for (UpdateRule rule : rules()) {
    const Arrays by_number = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    Arrays by_tensor = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    by_tensor.gradient_scale = at::full({}, 1 / 3.0, at::kDouble);
    run(rule, by_tensor);
    std::visit([](auto& r) { r.gradient_scale = 1 / 3.0; }, rule);
    run(rule, by_number);
    expect_same_bits(by_tensor, by_number, message("rule ", rule.index(), " state "));
  }
}

TEST(Update, WritesNothingByAScaleThatIsNoNumber) {
  for (const UpdateRule& rule : rules()) {
    const Arrays before = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    Arrays arrays = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    arrays.gradient_scale = at::full({}, std::nan(""), at::kDouble);
    run(rule, arrays);
    expect_same_bits(arrays, before, message("rule ", rule.index(), " state "));
  }
}

void expect_update_error(const UpdateRule& rule, const Arrays& arrays, const std::string& part) {
  EXPECT_ERROR(UsageError, run(rule, arrays), part);
}

TEST(Update, NamesTheTensorThatDoesNotFit) {
  const UpdateRule lion = rules()[2];
  const auto changed = [&](auto change) {
    Arrays a = make(lion, 8, at::kFloat, at::kHalf);
    change(a);
    return a;
  };
  expect_update_error(lion, changed([](Arrays& a) { a.states.clear(); }),
                      "got 0 state tensors, the rule has 1");
  expect_update_error(lion, changed([](Arrays& a) { a.states[0] = at::zeros({7}); }), "s0 has 7 elements");
  expect_update_error(lion, changed([](Arrays& a) { a.states[0] = at::zeros({8}, at::kBFloat16); }),
                      "s0 has dtype");
  expect_update_error(lion, changed([](Arrays& a) { a.gradient = at::zeros({8}, at::kDouble); }),
                      "gradient has dtype Double");
  expect_update_error(lion, changed([](Arrays& a) { a.master = at::zeros({8}, at::kDouble); }),
                      "gradient has dtype Float, expected Double");
  expect_update_error(AdamRule(), make(AdamRule(), 8, at::kFloat, at::ScalarType::Undefined),
                      "AdamRule with a master of dtype Float");
  expect_update_error(lion, changed([](Arrays& a) { a.low_precision = at::zeros({8}); }),
                      "low_precision has dtype");
  expect_update_error(lion, changed([](Arrays& a) { a.gradient_scale = at::ones({2}, at::kDouble); }),
                      "gradient_scale has 2 elements");
  expect_update_error(lion, changed([](Arrays& a) {
                        a.master = at::zeros({8, 2}).select(1, 0);
                      }),
                      "contiguous");
}

}  // namespace
}  // namespace deepspeed::kernels
