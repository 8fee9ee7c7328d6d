// The CUDA kernels against those of the CPU, on the same values.
#include <cmath>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/precision/loss_scaler.h"

#include "tests/cuda/require_cuda.h"
#include "tests/kernels/adam_case.h"
#include "tests/kernels/update_case.h"

namespace deepspeed::kernels {
namespace {

using CudaKernels = testing::CudaTest;

// 0 to a pack and one; many blocks with a rest.
const std::vector<int64_t> kSizes = {0, 1, 3, 4, 5, 1003, (int64_t{1} << 22) + 3};

at::Tensor moved(const at::Tensor& tensor, const at::Device& device) {
  return tensor.defined() ? tensor.to(device, /*non_blocking=*/false, /*copy=*/true) : tensor;
}

AdamTensors moved(const AdamTensors& t, const at::Device& device) {
  return {moved(t.master, device), moved(t.gradient, device), moved(t.exp_avg, device),
          moved(t.exp_avg_sq, device), moved(t.low_precision, device)};
}

Arrays moved(const Arrays& a, const at::Device& device) {
  Arrays copy{moved(a.master, device), moved(a.gradient, device), moved(a.low_precision, device), {}};
  for (const at::Tensor& state : a.states) copy.states.push_back(moved(state, device));
  return copy;
}

// Three steps on the GPU give the bits of those on the CPU.
void expect_steps_of_the_cpu(const AdamTensors& on_cpu, const std::string& what) {
  const AdamTensors on_cuda = moved(on_cpu, at::kCUDA);
  AdamStep step = hyperparameters();
  for (step.step = 1; step.step <= 3; ++step.step) {
    step.rounding_seed = static_cast<uint64_t>(step.step);
    adam(on_cpu, step);
    adam(on_cuda, step);
  }
  expect_same_bits(on_cpu, moved(on_cuda, at::kCPU), what);
}

// So does a step of all but the first and the last of 1005 elements.
void expect_unaligned_step_of_the_cpu(const AdamTensors& whole) {
  const auto part = [](const AdamTensors& t) {
    const auto cut = [](const at::Tensor& tensor) { return tensor.narrow(0, 1, 1003); };
    return AdamTensors{cut(t.master), cut(t.gradient), cut(t.exp_avg), cut(t.exp_avg_sq),
                       cut(t.low_precision)};
  };
  const AdamTensors on_cuda = moved(whole, at::kCUDA);
  adam(part(whole), hyperparameters());
  adam(part(on_cuda), hyperparameters());
  expect_same_bits(whole, moved(on_cuda, at::kCPU), "with the elements beside them");
}

TEST_F(CudaKernels, AdamGivesTheBitsOfTheCpu) {
  for (const int64_t numel : kSizes) {
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      for (const auto gradient : gradients()) {
        for (const auto copy : copies()) {
          const Case c{numel, gradient, moments, copy};
          const AdamTensors on_cpu = make_tensors(c, 5);
          expect_steps_of_the_cpu(on_cpu, message(numel, " elements"));
        }
      }
    }
  }
}

TEST_F(CudaKernels, AdamTakesArraysThatAreNotAligned) {
  expect_unaligned_step_of_the_cpu(make_tensors({1005, at::kBFloat16, at::kFloat, at::kBFloat16}, 6));
}

TEST_F(CudaKernels, AdamUpdatesSplitMastersAsFp32Ones) {
  for (const int64_t numel : kSizes) {
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      for (const auto gradient : gradients()) {
        const AdamTensors whole =
            moved(make_tensors({numel, gradient, moments, at::kBFloat16}, 5), at::kCUDA);
        const AdamTensors halves = split(whole);
        AdamStep step = hyperparameters();
        for (step.step = 1; step.step <= 3; ++step.step) {
          step.rounding_seed = static_cast<uint64_t>(step.step);
          adam(whole, step);
          adam(halves, step);
        }
        expect_same_update(halves, whole, message(numel, " elements"));
      }
    }
  }
}

TEST_F(CudaKernels, AdamUpdatesMastersOfSixteenBitsAsTheCpu) {
  for (const int64_t numel : kSizes) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      for (const auto moments : {at::kFloat, at::kBFloat16}) {
        const AdamTensors on_cpu = narrowed(make_tensors({numel, at::kBFloat16, moments, dtype}, 5), dtype);
        expect_steps_of_the_cpu(on_cpu, message(numel, " elements"));
      }
    }
  }
}

TEST_F(CudaKernels, AdamTakesSplitMastersThatAreNotAligned) {
  expect_unaligned_step_of_the_cpu(split(make_tensors({1005, at::kBFloat16, at::kFloat, at::kBFloat16}, 6)));
}

TEST_F(CudaKernels, EveryKindOfMasterIsSplitAndJoinedAsOnTheCpu) {
  const at::Tensor upper = at::arange(-32768, 32768, at::kInt).mul(65536);
  for (const int lower : {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}) {
    const at::Tensor masters = upper.bitwise_or(lower).view(at::kFloat);
    const auto halves_on = [&](const at::Device& device) {
      const auto options = masters.options().device(device);
      const at::Tensor high = at::empty({masters.numel()}, options.dtype(at::kBFloat16));
      const at::Tensor low = at::empty({masters.numel()}, options.dtype(at::kShort));
      split_master(masters.to(device), high, low);
      return std::pair(high, low);
    };
    const auto [high, low] = halves_on(at::kCPU);
    const auto [cuda_high, cuda_low] = halves_on(at::kCUDA);
    EXPECT_TRUE(at::equal(high.view(at::kShort), cuda_high.cpu().view(at::kShort))) << lower;
    EXPECT_TRUE(at::equal(low, cuda_low.cpu())) << lower;
    EXPECT_TRUE(same_bits(join_master(high, low), join_master(cuda_high, cuda_low).cpu())) << lower;
    // With a rate of 0 the kernel joins and splits, and leaves what is finite.
    AdamStep step;
    step.lr = 0;
    const at::Tensor zeros = at::zeros_like(masters, at::kCUDA);
    adam({cuda_low, zeros, zeros.clone(), zeros.clone(), cuda_high}, step);
    const at::Tensor finite = masters.isfinite();
    EXPECT_TRUE(same_bits(join_master(cuda_high, cuda_low).cpu().index({finite}), masters.index({finite})));
  }
}

TEST_F(CudaKernels, EveryUpdateRuleGivesTheBitsOfTheCpu) {
  for (const UpdateRule& rule : rules()) {
    for (const int64_t numel : {int64_t{1}, int64_t{1003}, (int64_t{1} << 20) + 1}) {
      for (const auto gradient : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const auto copy = writes_master(rule) ? at::kBFloat16 : at::ScalarType::Undefined;
        const Arrays on_cpu = make(rule, numel, gradient, copy);
        const Arrays on_cuda = moved(on_cpu, at::kCUDA);
        run(rule, on_cpu);
        run(rule, on_cuda);
        expect_same_bits(on_cpu, moved(on_cuda, at::kCPU), message("rule ", rule.index(), " state "));
      }
    }
  }
}

TEST_F(CudaKernels, EveryUpdateRuleGivesTheBitsOfTheCpuInDouble) {
  std::vector<UpdateRule> all = rules();
  AdamRule adam;
  adam.gradient_scale = 0.5, adam.beta1 = 0.9, adam.one_minus_beta1 = 0.1;
  adam.beta2 = 0.99, adam.one_minus_beta2 = 0.01, adam.eps = 1e-8, adam.step_size = 0.01;
  all.push_back(adam);
  for (const UpdateRule& rule : all) {
    Arrays on_cpu = make(rule, 1003, at::kDouble, at::ScalarType::Undefined);
    on_cpu.master = on_cpu.master.to(at::kDouble);
    for (at::Tensor& state : on_cpu.states) state = state.to(at::kDouble);
    const Arrays on_cuda = moved(on_cpu, at::kCUDA);
    run(rule, on_cpu);
    run(rule, on_cuda);
    expect_same_bits(on_cpu, moved(on_cuda, at::kCPU), message("rule ", rule.index(), " state "));
  }
}

// Returns the scale that a device makes of a norm.
at::Tensor scale_of(double norm, double loss_scale, double clip) {
  return gradient_scale(at::full({1}, norm * norm, at::device(at::kCUDA).dtype(at::kDouble)), loss_scale,
                        clip);
}

TEST_F(CudaKernels, TheScaleOfAStepIsThatOfTheHost) {
  for (const double norm : {0.0, 0.75, 3.5, 12345.0}) {
    for (const double loss_scale : {1.0, 3.0, 65536.0}) {
      for (const double clip : {0.1, 7.0}) {
        EXPECT_EQ(scale_of(norm, loss_scale, clip).item<double>(),
                  precision::combined_gradient_scale(norm, loss_scale, clip))
            << norm << " " << loss_scale << " " << clip;
      }
    }
  }
  EXPECT_EQ(scale_of(INFINITY, 8, 0.1).item<double>(), 0.125);
  EXPECT_EQ(scale_of(NAN, 8, 0.1).item<double>(), 0.125);
}

TEST_F(CudaKernels, AStepWithoutAFiniteNormWritesNothing) {
  const at::Tensor sum = at::full({1}, NAN, at::device(at::kCUDA).dtype(at::kDouble));
  const at::Tensor scale = gradient_scale(sum, 8, 0, NonFinite::kSkipped);
  EXPECT_TRUE(std::isnan(scale.item<double>()));
  EXPECT_EQ(gradient_scale(sum.fill_(4.0), 8, 0, NonFinite::kSkipped).item<double>(), 0.125);
  const AdamTensors before = make_tensors({1003, at::kBFloat16, at::kBFloat16, at::kBFloat16}, 8);
  AdamTensors t = moved(before, at::kCUDA);
  t.gradient_scale = scale;
  adam(t, hyperparameters());
  expect_same_bits(before, moved(t, at::kCPU), "Adam");
  for (const UpdateRule& rule : rules()) {
    const Arrays arrays = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    Arrays on_cuda = moved(arrays, at::kCUDA);
    on_cuda.gradient_scale = scale;
    run(rule, on_cuda);
    expect_same_bits(arrays, moved(on_cuda, at::kCPU), message("rule ", rule.index(), " state "));
  }
}

TEST_F(CudaKernels, AdamTakesTheScaleThatTheDeviceHas) {
  for (const auto moments : {at::kFloat, at::kBFloat16}) {
    for (const bool adamw : {false, true}) {
      AdamTensors on_cpu = make_tensors({1003, at::kBFloat16, moments, at::kBFloat16}, 8);
      AdamTensors on_cuda = moved(on_cpu, at::kCUDA);
      AdamStep step = hyperparameters();
      step.adamw_mode = adamw;
      on_cuda.gradient_scale = scale_of(0.7, 3, 0.1);
      adam(on_cuda, step);
      step.gradient_scale = precision::combined_gradient_scale(0.7, 3, 0.1);
      adam(on_cpu, step);
      expect_same_bits(on_cpu, moved(on_cuda, at::kCPU), adamw ? "AdamW" : "Adam");
    }
  }
}

TEST_F(CudaKernels, EveryUpdateRuleTakesTheScaleThatTheDeviceHas) {
  for (UpdateRule rule : rules()) {
    const Arrays on_cpu = make(rule, 1003, at::kBFloat16, at::ScalarType::Undefined);
    Arrays on_cuda = moved(on_cpu, at::kCUDA);
    on_cuda.gradient_scale = scale_of(0.7, 3, 0.1);
    run(rule, on_cuda);
    std::visit([](auto& r) { r.gradient_scale = precision::combined_gradient_scale(0.7, 3, 0.1); }, rule);
    run(rule, on_cpu);
    expect_same_bits(on_cpu, moved(on_cuda, at::kCPU), message("rule ", rule.index(), " state "));
  }
}

TEST_F(CudaKernels, GradStatsAgreeAndSeeOneBadElement) {
  for (const int64_t numel : kSizes) {
    for (const auto type : gradients()) {
      const auto generator = at::detail::createCPUGenerator(7);
      const at::Tensor values = at::randn({numel}, generator, at::kFloat).to(type);
      const GradStats expected = grad_stats(values), seen = grad_stats(values.to(at::kCUDA));
      EXPECT_NEAR(seen.sum_of_squares, expected.sum_of_squares, 1e-12 * expected.sum_of_squares) << numel;
      EXPECT_TRUE(seen.finite);
      if (numel == 0) continue;
      for (const int64_t bad : {int64_t{0}, numel / 2, numel - 1}) {
        at::Tensor spoilt = values.to(at::kCUDA);
        spoilt[bad] = std::numeric_limits<float>::infinity();
        EXPECT_FALSE(grad_stats(spoilt).finite) << bad << " of " << numel;
      }
    }
  }
}

}  // namespace
}  // namespace deepspeed::kernels
