// BERT for masked language modelling, of DeepSpeed's transformer layers: nothing in it knows of ranks, ZeRO
// or the engine.
//
// Names of parameters are those of Hugging Face's BertForMaskedLM, but for those of the layers, which are
// DeepSpeed's (bert_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <deepspeed/ops.h>

#include "bert_config.h"

namespace bert {

inline constexpr int64_t kIgnored = -100;  // the target of a token that is not to be foretold

/// What a BERT takes beside its tokens, each (B, T), and undefined where it is left out.
struct BertInputs {
  at::Tensor attention_mask = {};  // int64 or bool, 0 where a token is seen by none; left out: all are seen
  at::Tensor token_type_ids = {};  // int64; left out: 0
};

class Bert : public torch::nn::Module {
 public:
  /// Weights are drawn from N(0, initializer_range), from torch's default generator.
  explicit Bert(const BertConfig& config);

  /// Returns the mean cross entropy in nats of the tokens whose target is not kIgnored, of which there must
  /// be one. tokens, targets: (B, T) int64, 1 <= T <= max_position_embeddings.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets);

  /// Returns scores of what stands at each position: (B, T) int64 -> (B, T, vocab_size). Throws
  /// deepspeed::UsageError for another shape.
  at::Tensor logits(const at::Tensor& tokens, const BertInputs& inputs = {});

  const BertConfig& config() const { return config_; }

 private:
  at::Tensor hidden(const at::Tensor& tokens, const BertInputs& inputs);  // (B, T, C)
  at::Tensor transformed(const at::Tensor& states);                       // (..., C), what the decoder takes
  const at::Tensor& decoder() const {
    return config_.tie_word_embeddings ? word_embeddings_->weight : decoder_->weight;
  }

  BertConfig config_;
  deepspeed::ops::Embedding word_embeddings_{nullptr}, position_embeddings_{nullptr},
      token_type_embeddings_{nullptr};
  deepspeed::ops::LayerNorm embeddings_norm_{nullptr};
  std::vector<std::shared_ptr<deepspeed::DeepSpeedTransformerLayer>> layers_;
  torch::nn::Linear dense_{nullptr};
  deepspeed::ops::LayerNorm head_norm_{nullptr};
  torch::nn::Linear decoder_{nullptr};  // none where it is the embedding
  at::Tensor bias_;                     // of the decoder
};

}  // namespace bert
