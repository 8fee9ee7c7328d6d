// A transformer layer as one autograd node, whose backward is written by hand.
//
// Let x be [T, H] with T = batch * sequence, drop() a dropout, and LN() a layer norm.
//   before-norm: a = attention(LN(x; norm) Wqkv^T + b), r = x + drop(a Wo^T + bo), f = LN(r; attn_n),
//                y = r + drop(gelu(f Wi^T + bi) Wout^T + bout)
//   after-norm:  a = attention(x Wqkv^T + b), r = x + drop(a Wo^T + bo), f = LN(r; attn_n),
//                y = LN(f + drop(gelu(f Wi^T + bi) Wout^T + bout); norm)
// gelu() is the tanh form (Hendrycks, Gimpel 2016).
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/layer_weights.h"
#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

/// Returns the layer's output, with the shape and dtype of hidden_states.
///
/// hidden_states: [batch, sequence, H] in float32, bfloat16, float16 or float64, on the CPU or a CUDA device.
/// attention_mask: [batch or 1, heads or 1, sequence or 1, sequence]; undefined means none. Its numbers are
/// added to the scores; a boolean is true for a token that attention sees. The mask gets no gradient.
/// Matrices have the dtype of hidden_states, vectors that dtype or float32. Under autocast states and
/// matrices are cast. config: a result of checked().
///
/// Throws UsageError that names the layer and the tensor, also for more sequences than batch_size. Backward
/// throws NotSupportedError for create_graph. With normalize_invertible, backward on the CPU throws
/// UsageError if a norm weight is 0.
at::Tensor transformer_layer(const at::Tensor& hidden_states, const at::Tensor& attention_mask,
                             const TransformerWeights& weights, const DeepSpeedTransformerConfig& config,
                             bool is_training);

}  // namespace deepspeed::ops
