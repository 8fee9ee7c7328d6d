// Runs a function as it is and as a checkpointed one, and compares all that a program sees of them.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/device/accelerator/rng.h"

#include "tests/autograd/backward_pair.h"

namespace deepspeed::testing {

/// What a program sees of a forward and its backward.
struct Seen {
  Tensors outputs;
  Tensors of_inputs;
  Tensors of_params;
  at::Tensor next_random;  // the generator goes on as it would
};

inline Seen see(const TensorFunction& function, const Tensors& inputs, const Tensors& params) {
  Seen seen;
  const Tensors leaves = fresh_leaves(inputs);
  device::seed_generators(7);
  Tensors outputs = function(leaves);
  Tensors roots;
  for (const auto& output : outputs) {
    seen.outputs.push_back(output.detach().clone());
    if (output.requires_grad()) roots.push_back(output);
  }
  const Tensors gradients = random_like(roots);
  outputs.clear();
  torch::autograd::backward(std::exchange(roots, {}), gradients);
  seen.next_random = at::rand({3});
  seen.of_inputs = take_gradients(leaves);
  seen.of_params = take_gradients(params);
  return seen;
}

inline void expect_equal_bits(const Seen& got, const Seen& expected) {
  expect_equal_bits(got.outputs, expected.outputs, "output");
  expect_equal_bits(got.of_inputs, expected.of_inputs, "input");
  expect_equal_bits(got.of_params, expected.of_params, "parameter");
  EXPECT_TRUE(got.next_random.equal(expected.next_random));
}

/// The function, checkpointed as the options say.
inline TensorFunction checkpointed(TensorFunction function, checkpointing::RegionOptions options = {}) {
  return [=](Tensors inputs) { return checkpointing::checkpoint_tensors(function, inputs, options); };
}

/// How often a function ran.
inline TensorFunction counted(const TensorFunction& function, int& count) {
  return [=, &count](Tensors inputs) {
    ++count;
    return function(std::move(inputs));
  };
}

}  // namespace deepspeed::testing
