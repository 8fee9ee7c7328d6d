// What tests of the fused operators share: inputs of every kind, and the bound that a result is held to.
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "tests/kernels/simd_target_guard.h"

namespace deepspeed::kernels {

constexpr at::ScalarType kOpDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};
constexpr int64_t kOddSizes[] = {1, 7, 33, 256, 1003};

inline at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

/// Half the distance of neighbours, as a part of a number.
inline double half_ulp(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 0x1p-8;
  if (dtype == at::kHalf) return 0x1p-11;
  return dtype == at::kFloat ? 0x1p-24 : 0x1p-53;
}

/// Holds a result, element by element, against an fp64 reference. It may be off by a rounding to its dtype,
/// and by `slack` roundings of the arithmetic (fp32, of fp64 fp64) of numbers of size 1 + |expected|. Nans
/// and infinities must agree.
inline void expect_near_reference(const at::Tensor& result, const at::Tensor& reference, double slack,
                                  const std::string& what) {
  ASSERT_TRUE(result.defined()) << what;
  ASSERT_EQ(result.sizes(), reference.sizes()) << what;
  const at::ScalarType dtype = result.scalar_type();
  const double arithmetic = slack * (dtype == at::kDouble ? 0x1p-53 : 0x1p-24);
  const at::Tensor got = result.cpu().to(at::kDouble).contiguous(),
                   want = reference.cpu().to(at::kDouble).contiguous();
  const double* const a = got.const_data_ptr<double>();
  const double* const b = want.const_data_ptr<double>();
  const double least = dtype == at::kHalf ? 0x1p-25 : 0.0;  // half the distance of fp16's smallest
  for (int64_t i = 0; i < got.numel(); ++i) {
    if ((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i]) continue;
    const double bound = half_ulp(dtype) * std::abs(b[i]) * 1.001 + least + arithmetic * (1 + std::abs(b[i]));
    ASSERT_LE(std::abs(a[i] - b[i]), bound) << what << " " << dtype << " " << result.sizes() << " element "
                                            << i << ": " << a[i] << ", expected " << b[i];
  }
}

/// Returns a copy that begins one element behind an aligned address.
inline at::Tensor unaligned(const at::Tensor& tensor) {
  const at::Tensor room = at::empty({tensor.numel() + 1}, tensor.options());
  return room.narrow(0, 1, tensor.numel()).view(tensor.sizes()).copy_(tensor);
}

/// Returns a copy whose elements lie in another order in memory.
inline at::Tensor strided(const at::Tensor& tensor) {
  return tensor.transpose(0, -1).contiguous().transpose(0, -1);
}

/// Runs a test for each instruction set of the machine.
inline void for_each_target(const std::function<void(const std::string&)>& test) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    test(target);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// Returns what `run` gives with one thread, with two and with five, which have to be equal bit for bit.
inline void expect_equal_for_threads(const std::function<at::Tensor()>& run) {
  const SimdTargetGuard guard;
  at::set_num_threads(1);
  const at::Tensor one = run();
  for (const int threads : {2, 5}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(run(), one)) << threads << " threads";
  }
}

}  // namespace deepspeed::kernels
