// Holds gradients of autograd against differences of the function, in fp64.
#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

namespace deepspeed::ops {

using Tensors = std::vector<at::Tensor>;

/// Checks the gradients of sum(weights * f(inputs)), with random weights for each output, by central
/// differences at every element of each input that requires a gradient.
inline void check_gradients(const std::function<Tensors(const Tensors&)>& function, Tensors inputs,
                            const char* what) {
  Tensors weights;
  const auto weighted_sum = [&] {
    const Tensors outputs = function(inputs);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (weights.size() <= i) weights.push_back(at::randn_like(outputs[i]));
      sum = sum + (outputs[i] * weights[i]).sum();
    }
    return sum;
  };
  Tensors learned;
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) learned.push_back(input);
  }
  const Tensors gradients = torch::autograd::grad({weighted_sum()}, learned);
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (size_t k = 0; k < learned.size(); ++k) {
    ASSERT_EQ(gradients[k].sizes(), learned[k].sizes()) << what;
    const at::Tensor flat = learned[k].detach().view({-1}), expected = gradients[k].reshape({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = weighted_sum().item<double>();
      flat[i] = value - kStep;
      const double below = weighted_sum().item<double>();
      flat[i] = value;
      const double slope = (above - below) / (2 * kStep), gradient = expected[i].item<double>();
      ASSERT_NEAR(gradient, slope, 1e-6 * (1 + std::abs(slope)))
          << what << ", input " << k << ", element " << i;
    }
  }
}

inline at::Tensor learned(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).set_requires_grad(true);
}

}  // namespace deepspeed::ops
