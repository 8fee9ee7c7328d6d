// The fused operators that have parameters, as modules of torch. Names of parameters are those of torch's own
// modules.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "deepspeed/ops/functional.h"

namespace deepspeed::ops {

/// layer_norm() with `weight` of ones and `bias` of zeros, [size].
class DEEPSPEED_API LayerNormImpl : public torch::nn::Module {
 public:
  explicit LayerNormImpl(int64_t size, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& input);
  /// Returns the norm of input + residual, and that sum.
  std::pair<at::Tensor, at::Tensor> add_and_norm(const at::Tensor& input, const at::Tensor& residual);

  at::Tensor weight, bias;

 private:
  double eps_;
};
TORCH_MODULE(LayerNorm);

/// rms_norm() with `weight` of ones, [size].
class DEEPSPEED_API RMSNormImpl : public torch::nn::Module {
 public:
  explicit RMSNormImpl(int64_t size, double eps = 1e-6);
  at::Tensor forward(const at::Tensor& input);
  /// Returns the norm of input + residual, and that sum.
  std::pair<at::Tensor, at::Tensor> add_and_norm(const at::Tensor& input, const at::Tensor& residual);

  at::Tensor weight;

 private:
  double eps_;
};
TORCH_MODULE(RMSNorm);

/// embedding() with a `weight` of normal numbers, [num_embeddings, dim]; the padding row is 0.
class DEEPSPEED_API EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(int64_t num_embeddings, int64_t dim, std::optional<int64_t> padding_index = {});
  at::Tensor forward(const at::Tensor& indices);

  at::Tensor weight;

 private:
  std::optional<int64_t> padding_index_;
};
TORCH_MODULE(Embedding);

/// linear_cross_entropy() with a `weight` [classes, features] and, if asked for, a `bias` [classes], both
/// uniform in
/// +-1 / sqrt(features).
class DEEPSPEED_API LinearCrossEntropyImpl : public torch::nn::Module {
 public:
  LinearCrossEntropyImpl(int64_t features, int64_t classes, bool has_bias = false,
                         const LinearCrossEntropyOptions& options = {});
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& targets);

  at::Tensor weight, bias;  // `bias` may be undefined

 private:
  LinearCrossEntropyOptions options_;
};
TORCH_MODULE(LinearCrossEntropy);

/// rotary_embedding() of positions 0, 1, ... with tables of `positions` rows, which are no parameters and no
/// buffers. They follow the input: in fp64 beside fp64, in fp32 beside others, on its device.
class DEEPSPEED_API RotaryEmbeddingImpl : public torch::nn::Module {
 public:
  RotaryEmbeddingImpl(int64_t positions, int64_t rotary, double base = 10000.0,
                      RotaryPairs pairs = RotaryPairs::kHalves);
  /// Turns heads [batch, heads, positions, dim], of which the first one is at `first_position`.
  at::Tensor forward(const at::Tensor& input, int64_t first_position = 0);

 private:
  /// Makes the tables anew where they do not fit a tensor.
  void follow(const at::Tensor& input);

  int64_t positions_, rotary_;
  double base_;
  RotaryTables tables_;
  RotaryPairs pairs_;
};
TORCH_MODULE(RotaryEmbedding);

}  // namespace deepspeed::ops
