// Llama as a torch::nn::Module of fused operators: nothing in it knows of ranks, ZeRO or the engine.
//
// Names and shapes of parameters are those of Hugging Face's LlamaForCausalLM.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <deepspeed/ops.h>

#include "llama_config.h"

namespace llama {

/// Attention of heads that may share keys and values (Ainslie et al. 2023).
class Attention : public torch::nn::Module {
 public:
  explicit Attention(const LlamaConfig& config);
  at::Tensor forward(const at::Tensor& x, const deepspeed::ops::RotaryTables& tables);  // as x, (B, T, C)

 private:
  int64_t heads_, shared_heads_, head_dim_;
  double dropout_;
  torch::nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const LlamaConfig& config);
  at::Tensor forward(const at::Tensor& x);  // (B, T, C) -> (B, T, C)

 private:
  torch::nn::Linear gate_proj_, up_proj_, down_proj_;
};

/// A layer whose norms add what came before to the residual stream.
class DecoderLayer : public torch::nn::Module {
 public:
  explicit DecoderLayer(const LlamaConfig& config);
  /// `added` (B, T, C) is what the layer before adds to `stream`; undefined in the first layer. Returns what
  /// this layer adds, and the stream that it adds to.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& added, const at::Tensor& stream,
                                            const deepspeed::ops::RotaryTables& tables);

 private:
  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<Mlp> mlp_;
  deepspeed::ops::RMSNorm input_layernorm_, post_attention_layernorm_;
};

class Llama : public torch::nn::Module {
 public:
  /// Weights are drawn from N(0, initializer_range), from torch's default generator.
  explicit Llama(const LlamaConfig& config);

  /// Returns the mean cross entropy in nats a token. tokens, targets: (B, T) int64, 1 <= T <=
  /// max_position_embeddings.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets);

  /// Returns the scores of the next token: (B, T) int64 -> (B, T, vocab_size). Throws deepspeed::UsageError
  /// for another shape.
  at::Tensor logits(const at::Tensor& tokens);

  const LlamaConfig& config() const { return config_; }

 private:
  at::Tensor hidden(const at::Tensor& tokens);  // (B, T) -> (B, T, C), after the last norm
  const at::Tensor& head() const {
    return config_.tie_word_embeddings ? embed_tokens_->weight : lm_head_->weight;
  }
  /// Returns cos and sin of `length` positions, which are made anew for a longer sequence or another device.
  deepspeed::ops::RotaryTables tables(int64_t length, const at::Device& device);

  LlamaConfig config_;
  deepspeed::ops::Embedding embed_tokens_{nullptr};
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  deepspeed::ops::RMSNorm norm_{nullptr};
  torch::nn::Linear lm_head_{nullptr};  // none where the head is the embedding
  deepspeed::ops::RotaryTables tables_;
};

}  // namespace llama
