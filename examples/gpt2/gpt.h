// GPT-2 as a plain torch::nn::Module of fused operators: nothing in it knows of ranks, ZeRO or the engine.
//
// Parameter names are those of Hugging Face's GPT2Model (wte.weight, h.0.attn.c_attn.weight, ...); weights of
// linear layers lie as torch::nn::Linear has them, [out, in]. The head is tied: logits = linear(x,
// wte.weight).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <deepspeed/ops.h>

#include "gpt_config.h"
#include "key_value_cache.h"

namespace gpt2 {

/// Draws the weights of a module and its children as GPT-2 draws them, from torch's default generator.
void initialize_weights(torch::nn::Module& module, const GptConfig& config);

class CausalSelfAttention : public torch::nn::Module {
 public:
  explicit CausalSelfAttention(const GptConfig& config);
  /// Attends: (B, T, C) -> (B, T, C), before the dropout of the residual branch. With a cache, of which
  /// `past` positions are filled, x has the T that follow.
  at::Tensor forward(const at::Tensor& x, LayerCache* cache = nullptr, int64_t past = 0);

 private:
  int64_t heads_;
  int64_t context_;
  double dropout_;
  torch::nn::Linear c_attn_;  // query, key and value of all heads in one product
  torch::nn::Linear c_proj_;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const GptConfig& config);
  at::Tensor forward(const at::Tensor& x);  // (B, T, C) -> (B, T, C)

 private:
  torch::nn::Linear c_fc_;
  torch::nn::Linear c_proj_;
};

/// The residual stream between blocks, (B, T, C): sum + branch. The next norm adds the branch, in the pass
/// that it takes anyway.
struct ResidualStream {
  at::Tensor sum, branch;  // no branch before the first block
};

class Block : public torch::nn::Module {
 public:
  explicit Block(const GptConfig& config);
  ResidualStream forward(const ResidualStream& x, LayerCache* cache = nullptr,
                         int64_t past = 0);  // as the attention
  at::Tensor forward(const at::Tensor& x);   // (B, T, C) -> (B, T, C)

 private:
  double dropout_;
  deepspeed::ops::LayerNorm ln_1_;
  std::shared_ptr<CausalSelfAttention> attn_;
  deepspeed::ops::LayerNorm ln_2_;
  std::shared_ptr<Mlp> mlp_;
};

class GPT : public torch::nn::Module {
 public:
  /// Weights are drawn from torch's default generator as GPT-2 draws them. Throws as validate() does.
  explicit GPT(const GptConfig& config);

  /// Returns the mean cross-entropy in nats a token. tokens, targets: (B, T) int64, 1 <= T <= context.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets);

  /// Returns the scores of the next token: (B, T) int64 -> (B, T, vocabulary). With a cache the T tokens
  /// follow those that it has, and are taken into it, without gradients. Throws deepspeed::UsageError for
  /// another shape, and where cache and tokens together are longer than the context.
  at::Tensor logits(const at::Tensor& tokens, KeyValueCache* cache = nullptr);

  const GptConfig& config() const { return config_; }

 private:
  // (B, T) -> (B, T, C), after the last LayerNorm
  at::Tensor hidden(const at::Tensor& tokens, KeyValueCache* cache);

  GptConfig config_;
  deepspeed::ops::Embedding wte_;  // tokens, and the head
  torch::nn::Embedding wpe_;       // positions
  std::vector<std::shared_ptr<Block>> blocks_;
  deepspeed::ops::LayerNorm ln_f_;
};

}  // namespace gpt2
