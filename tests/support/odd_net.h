// A small model with everything that makes ZeRO stumble: odd sizes, a parameter smaller than any world, a
// frozen one, one that is never used, one used in two places, and dropout.
#pragma once

#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace deepspeed::testing {

class OddNet : public torch::nn::Module {
 public:
  /// Weights follow from `seed`, by formula.
  explicit OddNet(double dropout = 0.0, uint64_t seed = 1);

  /// inputs (B, 7), targets (B, 5) -> mean squared error, a scalar.
  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& targets);

 private:
  torch::nn::Linear first_{nullptr};  // 7 -> 13
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear shared_{nullptr};  // 13 -> 13, used twice
  torch::nn::Linear last_{nullptr};    // 13 -> 5
  torch::nn::Dropout dropout_{nullptr};
  at::Tensor gain_;    // (1)
  at::Tensor frozen_;  // (5)
  at::Tensor unused_;  // (3)
};

/// Sample `index` of an endless data set, by formula: inputs (7), targets (5).
std::pair<at::Tensor, at::Tensor> odd_sample(int64_t index);

/// Samples first, first + 1, ...: (count, 7) and (count, 5), on the device of the tests.
std::pair<at::Tensor, at::Tensor> odd_batch(int64_t first, int64_t count);

}  // namespace deepspeed::testing
