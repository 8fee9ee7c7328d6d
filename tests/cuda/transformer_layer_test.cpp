// The transformer layer on a CUDA device, forward and backward: against the CPU's, and with what its options
// compute again.
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/ops/transformer/layer_function.h"

#include "tests/cuda/require_cuda.h"

namespace deepspeed::ops {
namespace {

using CudaTransformerLayer = testing::CudaTest;
using Tensors = std::vector<at::Tensor>;

DeepSpeedTransformerConfig config_of(bool pre_layer_norm, double dropout_ratio) {
  DeepSpeedTransformerConfig config;
  config.hidden_size = 24;
  config.intermediate_size = 70;
  config.heads = 3;
  config.attn_dropout_ratio = config.hidden_dropout_ratio = dropout_ratio;
  config.pre_layer_norm = pre_layer_norm;
  return config.checked();
}

/// The states, the mask and the weights in the order of kTransformerWeights, in fp64.
Tensors inputs_of(const DeepSpeedTransformerConfig& config) {
  at::manual_seed(5);
  const int64_t hidden = config.hidden_size, inter = config.intermediate_size;
  const auto matrix = [](int64_t out, int64_t in) {
    return at::randn({out, in}, at::kDouble) / std::sqrt(static_cast<double>(in));
  };
  const auto vector = [](int64_t size) { return 0.3 * at::randn({size}, at::kDouble); };
  const auto norm = [&] { return 0.5 + at::rand({hidden}, at::kDouble); };
  at::Tensor mask = at::zeros({2, 1, 1, 7}, at::kDouble);
  mask.narrow(0, 1, 1).narrow(3, 4, 3).fill_(-10000);
  return {at::randn({2, 7, hidden}, at::kDouble),
          mask,
          matrix(3 * hidden, hidden),
          vector(3 * hidden),
          matrix(hidden, hidden),
          vector(hidden),
          norm(),
          vector(hidden),
          matrix(inter, hidden),
          vector(inter),
          matrix(hidden, inter),
          vector(hidden),
          norm(),
          vector(hidden)};
}

/// Returns the output and the gradients of the states and the weights, on the CPU in fp64.
Tensors run_on(const at::Device& device, at::ScalarType dtype, const DeepSpeedTransformerConfig& config) {
  Tensors learned;
  at::Tensor mask;
  const Tensors given = inputs_of(config);
  for (size_t i = 0; i < given.size(); ++i) {
    const at::Tensor moved = given[i].to(dtype).to(device);
    if (i == 1) {
      mask = moved;
    } else {
      learned.push_back(moved.detach().set_requires_grad(true));
    }
  }
  TransformerWeights weights;
  for (size_t i = 0; i < kTransformerWeights.size(); ++i) {
    weights.*kTransformerWeights[i].second = learned[1 + i];
  }
  at::manual_seed(6);
  const at::Tensor output = transformer_layer(learned[0], mask, weights, config, /*is_training=*/true);
  const at::Tensor gradient = at::linspace(-1, 1, output.numel()).view(output.sizes());
  Tensors results = torch::autograd::grad({output}, learned, {gradient.to(dtype).to(device)});
  results.push_back(output.detach());
  for (at::Tensor& result : results) result = result.cpu().to(at::kDouble);
  return results;
}

TEST_F(CudaTransformerLayer, GivesTheResultsOfTheCpu) {
  for (const bool pre : {true, false}) {
    for (const bool inverts : {true, false}) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        DeepSpeedTransformerConfig config = config_of(pre, 0);
        config.normalize_invertible = inverts;
        const Tensors expected = run_on(at::kCPU, dtype, config), seen = run_on(at::kCUDA, dtype, config);
        // The CPU's attention without dropout sums in another order.
        const double tolerance = dtype == at::kDouble ? 1e-9 : dtype == at::kFloat ? 1e-4 : 0.06;
        for (size_t i = 0; i < expected.size(); ++i) {
          const double size = expected[i].square().mean().sqrt().item<double>();
          EXPECT_LE((seen[i] - expected[i]).abs().max().item<double>(),
                    tolerance * (size + expected[i].abs().max().item<double>()))
              << "result " << i << " in " << dtype << (pre ? " pre" : " post")
              << (inverts ? " inverted" : "");
        }
      }
    }
  }
}

TEST_F(CudaTransformerLayer, HasEqualBitsWithWhatBackwardComputesAgain) {
  for (const bool pre : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const DeepSpeedTransformerConfig plain = config_of(pre, 0.2);
      const Tensors expected = run_on(at::kCUDA, dtype, plain);
      DeepSpeedTransformerConfig saving = plain;
      saving.gelu_checkpoint = saving.attn_dropout_checkpoint = true;
      const Tensors seen = run_on(at::kCUDA, dtype, saving);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(seen[i].equal(expected[i])) << "result " << i;
      EXPECT_FALSE(run_on(at::kCUDA, dtype, config_of(pre, 0)).back().equal(expected.back()))
          << "nothing was dropped";
    }
  }
}

}  // namespace
}  // namespace deepspeed::ops
