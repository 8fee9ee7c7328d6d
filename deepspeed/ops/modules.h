// Modules of torch for the fused operators that have parameters. The parameters have the names that they have
// in torch's own modules.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "deepspeed/ops/functional.h"

namespace deepspeed::ops {

/// Holds `weight` and `bias`, [size], for layer_norm(). They start as ones and zeros.
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

/// Holds `weight`, [size], for rms_norm(). It starts as ones.
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

/// Holds `weight`, [num_embeddings, dim], for embedding(). It starts as normal numbers, with a padding row of
/// zeros.
class DEEPSPEED_API EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(int64_t num_embeddings, int64_t dim, std::optional<int64_t> padding_index = {});
  at::Tensor forward(const at::Tensor& indices);

  at::Tensor weight;

 private:
  std::optional<int64_t> padding_index_;
};
TORCH_MODULE(Embedding);

/// Holds `weight` and an optional `bias` for linear_cross_entropy().
///
/// Their shapes are [classes, features] and [classes]. Both start uniform within 1 / sqrt(features) of 0.
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

/// Holds tables of `positions` rows for rotary_embedding(). They are neither parameters nor buffers.
///
/// The tables are on the input's device, in fp64 for an fp64 input and in fp32 for any other.
class DEEPSPEED_API RotaryEmbeddingImpl : public torch::nn::Module {
 public:
  RotaryEmbeddingImpl(int64_t positions, int64_t rotary, double base = 10000.0,
                      RotaryPairs pairs = RotaryPairs::kHalves);
  /// Rotates heads [batch, heads, positions, dim]. Their first position is `first_position`.
  at::Tensor forward(const at::Tensor& input, int64_t first_position = 0);

 private:
  /// Computes the tables again if the input needs another device or dtype.
  void follow(const at::Tensor& input);

  int64_t positions_, rotary_;
  double base_;
  RotaryTables tables_;
  RotaryPairs pairs_;
};
TORCH_MODULE(RotaryEmbedding);

}  // namespace deepspeed::ops
