// DeepSpeed's transformer layer: an encoder layer as BERT has it, in one function of autograd whose backward
// is written by hand, over fused kernels. docs/transformer_layer.md is the guide.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "deepspeed/base/export.h"
#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

struct TransformerWeights;

/// A module with twelve parameters, float32 until a cast, in DeepSpeed's names and shapes (H hidden_size, I
/// intermediate_size): attn_qkvw [3H, H], attn_qkvb [3H], attn_ow [H, H], attn_ob, attn_nw, attn_nb [H],
/// inter_w [I, H], inter_b [I], output_w [H, I], output_b, norm_w, norm_b [H].
class DEEPSPEED_API DeepSpeedTransformerLayer : public torch::nn::Module {
 public:
  /// Draws the matrices from N(0, initializer_range); biases are 0, norms 1 and 0. Throws ConfigError for a
  /// value out of range, and where the drawing lacks initializer_range or num_hidden_layers.
  explicit DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config);

  /// Copies the weights of another implementation, eight each: of queries, keys, values, attention output,
  /// the norm behind the attention, intermediate, output, last norm. Matrices are [out, in]. A bias that is
  /// undefined is 0. Throws UsageError for another number or shape.
  DeepSpeedTransformerLayer(const DeepSpeedTransformerConfig& config,
                            const std::vector<at::Tensor>& initial_weights,
                            const std::vector<at::Tensor>& initial_biases);

  /// hidden_states: [batch, sequence, H] in the dtype of the matrices: float32, bfloat16, float16, float64.
  /// attention_mask: is added to the scores, [batch or 1, heads or 1, sequence or 1, sequence], e.g. 0 and
  /// -10000; or booleans, true where a token is seen; undefined: none. Returns a tensor like hidden_states.
  /// In training dropout takes its seeds from torch's default generator of the device, so recomputation
  /// repeats it. Throws UsageError for another shape, dtype or device, and for more sequences than
  /// batch_size.
  at::Tensor forward(const at::Tensor& hidden_states, const at::Tensor& attention_mask = {});

  /// The config, with what -1 stands for.
  const DeepSpeedTransformerConfig& config() const { return config_; }

 private:
  void register_weights();

  DeepSpeedTransformerConfig config_;
  std::shared_ptr<TransformerWeights> weights_;  // the module's parameters
};

}  // namespace deepspeed::ops
