// Runs a function's backward in one piece and in two, and compares all gradients.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/device/accelerator/rng.h"

namespace deepspeed::testing {

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(Tensors)>;

/// The gradients of a function, and how they came.
struct Gradients {
  Tensors of_inputs;
  Tensors of_params;
  size_t num_halves = 0;
};

inline Tensors fresh_leaves(const Tensors& values) {
  Tensors leaves;
  for (const auto& value : values) {
    leaves.push_back(value.detach().clone());
    if (value.is_floating_point()) leaves.back().requires_grad_();
  }
  return leaves;
}

inline Tensors random_like(const Tensors& outputs) {
  Tensors gradients;
  for (const auto& output : outputs) gradients.push_back(at::randn(output.sizes(), output.options()));
  return gradients;
}

inline Tensors take_gradients(const Tensors& params) {
  Tensors taken;
  for (const auto& param : params) taken.push_back(std::exchange(param.mutable_grad(), at::Tensor()));
  return taken;
}

inline Gradients plain_gradients(const TensorFunction& function, const Tensors& inputs,
                                 const Tensors& params) {
  const Tensors leaves = fresh_leaves(inputs);
  device::seed_generators(7);
  const Tensors outputs = function(leaves);
  torch::autograd::backward(outputs, random_like(outputs));
  return {take_gradients(leaves), take_gradients(params), 0};
}

/// Expects that no parameter has a gradient before the second half.
inline Gradients split_gradients(const TensorFunction& function, const Tensors& inputs,
                                 const Tensors& params) {
  const Tensors leaves = fresh_leaves(inputs);
  device::seed_generators(7);
  Tensors outputs = function(leaves);
  autograd::WeightBackward later;
  Gradients gradients;
  gradients.of_inputs = autograd::backward_inputs(outputs, random_like(outputs), leaves, later);
  outputs.clear();
  for (const auto& param : params) EXPECT_FALSE(param.grad().defined());
  gradients.num_halves = later.num_halves();
  later.run();
  gradients.of_params = take_gradients(params);
  return gradients;
}

inline void expect_equal_bits(const Tensors& got, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << what << " " << i;
    EXPECT_TRUE(!got[i].defined() || got[i].equal(expected[i])) << what << " " << i;
  }
}

/// Compares both ways, all bits. Returns what the two halves gave.
inline Gradients expect_same_in_halves(const TensorFunction& function, const Tensors& inputs,
                                       const Tensors& params) {
  const Gradients plain = plain_gradients(function, inputs, params);
  Gradients split = split_gradients(function, inputs, params);
  expect_equal_bits(split.of_inputs, plain.of_inputs, "input");
  expect_equal_bits(split.of_params, plain.of_params, "parameter");
  return split;
}

}  // namespace deepspeed::testing
