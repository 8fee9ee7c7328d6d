#include <type_traits>
#include <variant>

#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

template <class Rule>
Rule with_adam_numbers(Rule rule) {
  rule.gradient_scale = 0.5, rule.beta1 = 0.9, rule.one_minus_beta1 = 0.1, rule.beta2 = 0.99;
  rule.one_minus_beta2 = 0.01;
  return rule;
}

std::vector<UpdateRule> rules() {
  SgdRule sgd{.gradient_scale = 0.5, .l2_decay = 0.1, .lr = 0.01};
  MomentumSgdRule momentum{.gradient_scale = 0.5,
                           .l2_decay = 0.1,
                           .lr = 0.01,
                           .momentum = 0.9,
                           .fresh = 0.8,
                           .direct = 1,
                           .look_ahead = 0.9};
  LionRule lion = with_adam_numbers(LionRule{});
  lion.lr = 0.01, lion.decay = 1e-3;
  AdagradRule adagrad{
      .gradient_scale = 0.5, .l2_decay = 0.1, .numerator_decay = 0.1, .lr = 0.01, .eps = 1e-10};
  AmsgradRule amsgrad = with_adam_numbers(AmsgradRule{});
  amsgrad.l2_decay = 0.1, amsgrad.eps = 1e-8, amsgrad.decoupled_decay = 1e-3, amsgrad.step_size = 0.01;
  amsgrad.inverse_sqrt_bias2 = 1.5;
  LambUpdateRule lamb = with_adam_numbers(LambUpdateRule{});
  lamb.eps_inside = 1e-6, lamb.eps_outside = 1e-6, lamb.weight_decay = 0.1;
  MuonMomentumRule muon{.gradient_scale = 0.5, .momentum = 0.95, .one_minus_momentum = 0.05};
  AdamRule adam = with_adam_numbers(AdamRule{});
  adam.eps = 1e-8, adam.step_size = 0.01;
  return {sgd, momentum, lion, adagrad, amsgrad, lamb, muon, adam};
}

struct UpdateCase {
  UpdateRule rule;
  int64_t numel = 0;
  Type gradient = Type::kFloat;
  Type copy = Type::kFloat;  // kFloat: there is none
  int64_t offset = 0;
  bool has_specials = false;
  double scale_on_device = 0;  // 0: the rule's

  std::string text() const {
    return "rule " + std::to_string(rule.index()) + " numel " + std::to_string(numel) + " gradient " +
           std::to_string(int(gradient)) + " copy " + std::to_string(int(copy)) + " offset " +
           std::to_string(offset);
  }
};

void expect_update_of_the_cpu(const UpdateCase& c) {
  SCOPED_TRACE(c.text());
  const bool has_copy = c.copy != Type::kFloat;
  const Type wide = c.gradient == Type::kDouble ? Type::kDouble : Type::kFloat;
  TwinArray master(wide, c.numel, c.offset), gradient(c.gradient, c.numel, c.offset);
  TwinArray copy(has_copy ? c.copy : Type::kByte, has_copy ? c.numel : 0, c.offset);
  TwinArray s0(wide, c.numel, c.offset), s1(wide, c.numel, c.offset), s2(wide, c.numel, c.offset);
  Random random(c.numel + 5);
  for (TwinArray* array : {&master, &gradient})
    array->fill([&](int64_t) { return random.special_or_normal(c.has_specials); });
  for (TwinArray* state : {&s0, &s1, &s2}) {
    state->fill([&](int64_t) {
      return c.has_specials && random.uniform() < 0.2 ? random.special(false) : random.uniform();
    });
  }
  const auto arrays = [&](void* (TwinArray::*on)()) {
    return UpdateArrays{.numel = c.numel,
                        .master = (master.*on)(),
                        .gradient = (gradient.*on)(),
                        .states = {(s0.*on)(), (s1.*on)(), (s2.*on)()},
                        .low_precision = (copy.*on)(),
                        .gradient_type = element(c.gradient),
                        .low_precision_type = element(c.copy)};
  };
  UpdateArrays on_device = arrays(&TwinArray::on_device);
  UpdateRule on_cpu = c.rule;
  const emulation::DeviceMemory scale(sizeof(double));
  if (c.scale_on_device != 0) {
    *static_cast<double*>(scale.data()) = c.scale_on_device;
    on_device.gradient_scale = static_cast<const double*>(scale.data());
    std::visit([&](auto& rule) { rule.gradient_scale = c.scale_on_device; }, on_cpu);
  }
  // By nan nothing is written.
  if (!std::isnan(c.scale_on_device)) update_simd(arrays(&TwinArray::on_cpu), on_cpu, 0, c.numel);
  ASSERT_EQ(launch_update(on_device, c.rule, nullptr), cudaSuccess);
  ASSERT_EQ(master.difference(), "") << "master";
  ASSERT_EQ(s0.difference(), "") << "state 0";
  ASSERT_EQ(s1.difference(), "") << "state 1";
  ASSERT_EQ(s2.difference(), "") << "state 2";
  ASSERT_EQ(copy.difference(), "") << "copy";
}

using UpdateKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, UpdateKernel, testing::Values(0, 7));

TEST_P(UpdateKernel, GivesTheBitsOfTheCpuByEveryRule) {
  for (const UpdateRule& rule : rules()) {
    const auto [writes, takes_float] = std::visit(
        [](const auto& r) {
          using Rule = std::decay_t<decltype(r)>;
          return std::pair(kWritesMaster<Rule>, kTakesFloat<Rule>);
        },
        rule);
    for (const int64_t numel : {1, 33, 257, 2048 + 5, 16388}) {
      for (const bool has_specials : {false, true}) {
        const int64_t offset = numel % 2;
        expect_update_of_the_cpu({rule, numel, Type::kDouble, Type::kFloat, offset, has_specials});
        if (!takes_float) continue;
        for (const Type gradient : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
          for (const Type copy : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
            if (copy == Type::kFloat || writes)
              expect_update_of_the_cpu({rule, numel, gradient, copy, offset, has_specials});
          }
        }
      }
    }
  }
}

TEST_P(UpdateKernel, TakesTheScaleThatTheDeviceHas) {
  for (const UpdateRule& rule : rules()) {
    const bool takes_float =
        std::visit([](const auto& r) { return kTakesFloat<std::decay_t<decltype(r)>>; }, rule);
    for (const Type gradient : {Type::kDouble, Type::kBFloat16}) {
      for (const double scale : {1 / 3.0, double{NAN}}) {
        if (gradient == Type::kDouble || takes_float)
          expect_update_of_the_cpu({rule, 257, gradient, Type::kFloat, 0, false, scale});
      }
    }
  }
}

TEST_P(UpdateKernel, TakesSeveralElementsAThreadIfTheGridIsFull) {
  if (is_slow_build()) GTEST_SKIP() << "the build for contracted sums has room and time for it";
  expect_update_of_the_cpu({rules()[4], 4096 * 256 + 5, Type::kBFloat16, Type::kBFloat16, 1, false});
}

TEST(UpdateKernelLaunch, SucceedsForNoElements) {
  EXPECT_EQ(launch_update({}, SgdRule(), nullptr), cudaSuccess);
}

}  // namespace
}  // namespace deepspeed::kernels
