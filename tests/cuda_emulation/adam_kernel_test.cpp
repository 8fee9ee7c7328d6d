#include <functional>

#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

struct AdamCase {
  int64_t numel = 0;
  Type gradient = Type::kFloat, moments = Type::kFloat;
  Type copy = Type::kFloat;  // kFloat: there is none
  MasterForm form = MasterForm::kFloat32;
  int64_t offset = 0, first_index = 0;
  bool has_l2 = false, has_specials = false, has_special_moments = false;
  int odd = -1;  // the array that lies an element further: master, gradient, two moments, copy

  std::string text() const {
    return "numel " + std::to_string(numel) + " gradient " + std::to_string(int(gradient)) + " moments " +
           std::to_string(int(moments)) + " copy " + std::to_string(int(copy)) + " form " +
           std::to_string(int(form)) + " offset " + std::to_string(offset) + " first index " +
           std::to_string(first_index) + " odd " + std::to_string(odd);
  }
  bool is_split() const { return form == MasterForm::kLowerHalf; }
  bool has_copy() const { return is_split() || (form == MasterForm::kFloat32 && copy != Type::kFloat); }
  Type copy_type() const { return is_split() ? Type::kBFloat16 : copy; }
  Type master_type() const {
    switch (form) {
      case MasterForm::kFloat16:
        return Type::kHalf;
      case MasterForm::kBFloat16:
        return Type::kBFloat16;
      case MasterForm::kLowerHalf:
        return Type::kBits16;
      default:
        return Type::kFloat;
    }
  }
};

AdamConstants adam_constants(const AdamCase& c, int step, double scale = 0.25) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  const double bias1 = 1 - std::pow(kBeta1, step), root_bias2 = std::sqrt(1 - std::pow(kBeta2, step));
  AdamConstants k;
  k.beta1 = float(kBeta1), k.one_minus_beta1 = float(1 - kBeta1);
  k.beta2 = float(kBeta2), k.one_minus_beta2 = float(1 - kBeta2);
  k.eps = float(1e-8 * root_bias2);
  k.l2_decay = c.has_l2 ? 0.1F : 0, k.decoupled_decay = c.has_l2 ? 0 : 1e-3F;
  k.step_size = float(1e-2 * root_bias2 / bias1);
  k.rounding_seed = uint64_t(step), k.first_index = c.first_index;
  k.unscaled_to_exp_avg = 1 - kBeta1, k.unscaled_to_root_of_square = std::sqrt(1 - kBeta2);
  k.inverse_step_size = 1 / k.step_size, k.eps_over_step_size = k.eps / k.step_size;
  set_gradient_scale(k, scale);
  return k;
}

struct AdamTwins {
  explicit AdamTwins(const AdamCase& c)
      : of(c),
        master(c.master_type(), c.numel, offset(0)),
        gradient(c.gradient, c.numel, offset(1)),
        exp_avg(c.moments, c.numel, offset(2)),
        exp_avg_sq(c.moments, c.numel, offset(3)),
        copy(c.has_copy() ? c.copy_type() : Type::kByte, c.has_copy() ? c.numel : 0, offset(4)) {
    Random random(c.numel + 31 * int64_t(c.gradient) + 7);
    if (c.is_split()) {
      fill_split(random);
    } else {
      master.fill([&](int64_t) { return random.special_or_normal(c.has_specials); });
      copy.fill([](int64_t) { return 3.0; });
    }
    gradient.fill([&](int64_t) { return random.special_or_normal(c.has_specials); });
    exp_avg.fill([&](int64_t) {
      return c.has_special_moments && random.uniform() < 0.2 ? random.special(true) : random.normal() * 0.1;
    });
    exp_avg_sq.fill([&](int64_t) {
      return c.has_special_moments && random.uniform() < 0.2 ? random.special(false) : random.uniform();
    });
  }

  AdamArrays arrays(void* (TwinArray::*on)()) {
    return {.numel = of.numel,
            .master = (master.*on)(),
            .master_form = of.form,
            .gradient = (gradient.*on)(),
            .exp_avg = (exp_avg.*on)(),
            .exp_avg_sq = (exp_avg_sq.*on)(),
            .low_precision = of.has_copy() ? (copy.*on)() : nullptr,
            .gradient_type = element(of.gradient),
            .moment_type = element(of.moments),
            .low_precision_type = element(of.copy_type())};
  }

  AdamCase of;
  TwinArray master, gradient, exp_avg, exp_avg_sq, copy;

 private:
  int64_t offset(int array) const { return of.offset + (array == of.odd ? 1 : 0); }

  // By the formula of split_master.h.
  void fill_split(Random& random) {
    for (int64_t i = 0; i < of.numel; ++i) {
      const auto value = static_cast<float>(random.special_or_normal(of.has_specials));
      uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      if (std::isnan(value)) bits = 0x7fc00000U;
      master.cpu_as<uint16_t>()[i] = uint16_t(bits);
      copy.cpu_as<uint16_t>()[i] = uint16_t((bits + 0x8000U) >> 16);
    }
    master.copy_to_device();
    copy.copy_to_device();
  }
};

void expect_adam_of_the_cpu(const AdamCase& c) {
  SCOPED_TRACE(c.text());
  AdamTwins twins(c);
  const AdamArrays on_cpu = twins.arrays(&TwinArray::on_cpu), on_device = twins.arrays(&TwinArray::on_device);
  for (int step = 1; step <= 2; ++step) {
    adam_simd(on_cpu, adam_constants(c, step), 0, c.numel, false);
    ASSERT_EQ(launch_adam(on_device, adam_constants(c, step), nullptr), cudaSuccess);
    ASSERT_EQ(twins.exp_avg.difference(), "") << "exp_avg, step " << step;
    ASSERT_EQ(twins.exp_avg_sq.difference(), "") << "exp_avg_sq, step " << step;
    ASSERT_EQ(twins.master.difference(), "") << "master, step " << step;
    ASSERT_EQ(twins.copy.difference(), "") << "copy, step " << step;
  }
}

/// Expects it of every combination of types.
void expect_adam_of_all_types(AdamCase c) {
  for (const Type gradient : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    for (const Type moments : {Type::kFloat, Type::kBFloat16}) {
      for (const MasterForm form :
           {MasterForm::kFloat32, MasterForm::kFloat16, MasterForm::kBFloat16, MasterForm::kLowerHalf}) {
        for (const Type copy : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
          if (form != MasterForm::kFloat32 && copy != Type::kFloat) continue;
          c.gradient = gradient, c.moments = moments, c.form = form, c.copy = copy;
          expect_adam_of_the_cpu(c);
        }
      }
    }
  }
}

// A scale that rounds to another float where it is rounded twice.
constexpr double kOddScale = 1 / 3.0;

/// Expects what the host's scale gives of one that the kernel reads.
void expect_the_scale_of_the_device(AdamCase c) {
  for (const bool has_l2 : {false, true}) {
    c.has_l2 = has_l2;
    SCOPED_TRACE(c.text());
    AdamTwins twins(c);
    AdamArrays on_device = twins.arrays(&TwinArray::on_device);
    const emulation::DeviceMemory scale(sizeof(double));
    *static_cast<double*>(scale.data()) = kOddScale;
    on_device.gradient_scale = static_cast<const double*>(scale.data());
    adam_simd(twins.arrays(&TwinArray::on_cpu), adam_constants(c, 1, kOddScale), 0, c.numel, false);
    ASSERT_EQ(launch_adam(on_device, adam_constants(c, 1, 17.0), nullptr), cudaSuccess);
    ASSERT_EQ(twins.exp_avg.difference(), "");
    ASSERT_EQ(twins.exp_avg_sq.difference(), "");
    ASSERT_EQ(twins.master.difference(), "");
    ASSERT_EQ(twins.copy.difference(), "");
  }
}

using AdamKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, AdamKernel, testing::Values(0, 7));

TEST_P(AdamKernel, GivesTheBitsOfTheCpu) {
  for (const int64_t numel : {1, 3, 31, 33, 255, 257, 1023, 2048 + 5}) {
    for (const int64_t offset : {0, 1, 2})
      expect_adam_of_all_types({.numel = numel, .offset = offset, .has_l2 = offset == 2});
  }
}

TEST_P(AdamKernel, GivesTheBitsOfTheCpuOverManyBlocks) { expect_adam_of_all_types({.numel = 20011}); }

TEST_P(AdamKernel, TakesOneArrayThatIsNotAligned) {
  for (int odd = 0; odd < 5; ++odd) expect_adam_of_all_types({.numel = 257, .odd = odd});
}

TEST_P(AdamKernel, GivesTheBitsOfTheCpuFromSpecialValues) {
  for (const int64_t offset : {0, 1}) {
    expect_adam_of_all_types({.numel = 2048 + 5, .offset = offset, .has_specials = true});
    expect_adam_of_all_types({.numel = 2048 + 5, .offset = offset, .has_special_moments = true});
  }
}

TEST_P(AdamKernel, CountsItsRandomNumbersAcrossAPowerOfTwo) {
  for (const int64_t first : {int64_t{5}, (int64_t{1} << 32) - 100, (int64_t{3} << 32) + 3})
    expect_adam_of_all_types({.numel = 257, .first_index = first});
}

TEST_P(AdamKernel, TakesSeveralElementsAThreadIfTheGridIsFull) {
  if (is_slow_build()) GTEST_SKIP() << "the build for contracted sums has room and time for it";
  constexpr int64_t kThreadsOfGrid = 4096 * 256;
  const AdamCase c{.gradient = Type::kBFloat16, .moments = Type::kBFloat16, .copy = Type::kBFloat16};
  AdamCase packed = c, single = c;
  packed.numel = kThreadsOfGrid * 4 + 4099;
  single.numel = kThreadsOfGrid + 4099, single.offset = 1;
  expect_adam_of_the_cpu(packed);
  expect_adam_of_the_cpu(single);
}

TEST_P(AdamKernel, TakesTheScaleThatTheDeviceHas) {
  for (const int64_t numel : {1, 257}) {
    for (const Type moments : {Type::kFloat, Type::kBFloat16}) {
      for (const MasterForm form : {MasterForm::kFloat32, MasterForm::kLowerHalf})
        expect_the_scale_of_the_device(
            {.numel = numel, .gradient = Type::kBFloat16, .moments = moments, .form = form});
    }
  }
}

TEST_P(AdamKernel, WritesNothingByAScaleThatIsNoNumber) {
  for (const Type moments : {Type::kFloat, Type::kBFloat16}) {
    AdamTwins twins({.numel = 257, .gradient = Type::kBFloat16, .moments = moments, .copy = Type::kBFloat16});
    AdamArrays on_device = twins.arrays(&TwinArray::on_device);
    const emulation::DeviceMemory scale(sizeof(double));
    *static_cast<double*>(scale.data()) = NAN;
    on_device.gradient_scale = static_cast<const double*>(scale.data());
    ASSERT_EQ(launch_adam(on_device, adam_constants(twins.of, 1), nullptr), cudaSuccess);
    for (TwinArray* array : {&twins.exp_avg, &twins.exp_avg_sq, &twins.master, &twins.copy})
      ASSERT_EQ(array->difference(), "");
  }
}

TEST(AdamKernelLaunch, SucceedsForNoElements) { EXPECT_EQ(launch_adam({}, {}, nullptr), cudaSuccess); }

}  // namespace
}  // namespace deepspeed::kernels
