// Inputs and comparisons that the tests of Adam share.
#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/split_master.h"

namespace deepspeed::kernels {

struct Case {
  int64_t numel;
  at::ScalarType gradient;
  at::ScalarType moments;
  at::ScalarType copy;  // Undefined: none
};

inline std::vector<at::ScalarType> copies() { return {at::ScalarType::Undefined, at::kHalf, at::kBFloat16}; }
inline std::vector<at::ScalarType> gradients() { return {at::kFloat, at::kHalf, at::kBFloat16}; }

inline AdamTensors make_tensors(const Case& c, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  AdamTensors t;
  t.master = at::randn({c.numel}, generator, at::kFloat);
  t.gradient = at::randn({c.numel}, generator, at::kFloat).to(c.gradient);
  t.exp_avg = at::zeros({c.numel}, c.moments);
  t.exp_avg_sq = at::zeros({c.numel}, c.moments);
  if (c.copy != at::ScalarType::Undefined) t.low_precision = at::zeros({c.numel}, c.copy);
  return t;
}

inline std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

inline AdamStep hyperparameters() {
  AdamStep step;
  step.lr = 1e-2;
  step.weight_decay = 0.1;
  step.gradient_scale = 0.25;
  return step;
}

inline AdamTensors run(const Case& c, int steps) {
  AdamTensors t = make_tensors(c, 5);
  AdamStep step = hyperparameters();
  for (int i = 1; i <= steps; ++i) {
    step.step = i;
    step.rounding_seed = static_cast<uint64_t>(i);
    adam(t, step);
  }
  return t;
}

inline void expect_same_bits(const AdamTensors& a, const AdamTensors& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.master, b.master)) << what;
  EXPECT_TRUE(at::equal(a.exp_avg, b.exp_avg)) << what;
  EXPECT_TRUE(at::equal(a.exp_avg_sq, b.exp_avg_sq)) << what;
  if (a.low_precision.defined()) {
    EXPECT_TRUE(at::equal(a.low_precision, b.low_precision)) << what;
  }
}

/// Copies of the tensors, but for the gradient, with a split master.
inline AdamTensors split(const AdamTensors& whole) {
  const at::Tensor lower = at::empty_like(whole.master, at::kShort);
  const at::Tensor upper = at::empty_like(whole.master, at::kBFloat16);
  split_master(whole.master, upper, lower);
  return {lower, whole.gradient, whole.exp_avg.clone(), whole.exp_avg_sq.clone(), upper};
}

/// Copies of the tensors, but for the gradient, with the copy as the master.
inline AdamTensors narrowed(const AdamTensors& whole, at::ScalarType dtype) {
  return {whole.master.to(dtype), whole.gradient, whole.exp_avg.clone(), whole.exp_avg_sq.clone(), {}};
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.view(at::kInt), b.view(at::kInt));
}

/// That a split master and its moments went the way of an fp32 one.
inline void expect_same_update(const AdamTensors& halves, const AdamTensors& whole, const std::string& what) {
  expect_same_bits(halves, split(whole), what);
  EXPECT_TRUE(same_bits(join_master(halves.low_precision, halves.master), whole.master)) << what;
}

}  // namespace deepspeed::kernels
