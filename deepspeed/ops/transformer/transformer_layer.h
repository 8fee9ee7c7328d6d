// DeepSpeed's transformer layer: an encoder layer like BERT's. It is one autograd function over fused
// kernels, with a backward written by hand. docs/transformer_layer.md is the guide.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "deepspeed/base/export.h"
#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

struct TransformerWeights;

/// Holds twelve parameters with DeepSpeed's names and shapes, in float32 until a cast.
///
/// With H hidden_size and I intermediate_size they are attn_qkvw [3H, H], attn_qkvb [3H], attn_ow [H, H],
/// attn_ob, attn_nw, attn_nb [H], inter_w [I, H], inter_b [I], output_w [H, I], output_b, norm_w, norm_b [H].
class DEEPSPEED_API DeepSpeedTransformerLayer : public torch::nn::Module {
 public:
  /// Draws the matrices from N(0, initializer_range). Norms start as 1, biases as 0.
  ///
  /// Throws ConfigError for a value out of range, and if initializer_range or num_hidden_layers is missing
  /// but needed.
  explicit DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config);

  /// Makes the layer from copies of another implementation's eight weights and eight biases.
  ///
  /// They belong to queries, keys, values, attention output, the norm after the attention, intermediate,
  /// output, last norm. Matrices are [out, in]. An undefined bias means 0. Throws UsageError for a wrong
  /// number or shape.
  DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config,
                            const std::vector<at::Tensor>& initial_weights,
                            const std::vector<at::Tensor>& initial_biases);

  /// Returns the layer's output, which has hidden_states' shape and dtype.
  ///
  /// hidden_states: [batch, sequence, H] in the dtype of the matrices: float32, bfloat16, float16, float64.
  /// attention_mask: [batch or 1, heads or 1, sequence or 1, sequence]. Numbers, such as 0 and -10000, are
  /// added to the scores. A boolean is true for a token that attention sees. Undefined means no mask. In
  /// training dropout follows the state of the device's default generator of torch, so a recomputation that
  /// restores this state drops the same elements. (The config's `seed` replaces only the generator's seed.)
  /// Throws UsageError for a wrong shape, dtype or device, and for more sequences than batch_size.
  at::Tensor forward(const at::Tensor& hidden_states, const at::Tensor& attention_mask = {});

  /// Returns the config, as checked() completes it.
  const DeepSpeedTransformerConfig& config() const { return config_; }

 private:
  void register_weights();

  DeepSpeedTransformerConfig config_;
  std::shared_ptr<TransformerWeights> weights_;  // the module's parameters
};

}  // namespace deepspeed::ops
