// The function of autograd that a transformer layer is: one node, whose backward is written by hand.
//
// With x [T, H] (T = batch * sequence), drop() a mask scaled by 1 / (1 - ratio) and LN() a layer norm:
//   before-norm: a = attention(LN(x; norm) Wqkv^T + b), r = x + drop(a Wo^T + bo), f = LN(r; attn_n),
//                y = r + drop(gelu(f Wi^T + bi) Wout^T + bout)
//   after-norm:  a = attention(x Wqkv^T + b), r = x + drop(a Wo^T + bo), f = LN(r; attn_n),
//                y = LN(f + drop(gelu(f Wi^T + bi) Wout^T + bout); norm)
// gelu() is the tanh form (Hendrycks, Gimpel 2016).
#pragma once

#include <array>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

/// A layer's parameters in DeepSpeed's names and order. H is the hidden size, I the intermediate one.
/// Matrices are [out, in], as those of torch's Linear.
struct TransformerWeights {
  at::Tensor attn_qkvw;           // [3H, H]: rows of the queries, of the keys, of the values
  at::Tensor attn_qkvb;           // [3H]
  at::Tensor attn_ow, attn_ob;    // [H, H], [H]
  at::Tensor attn_nw, attn_nb;    // [H]: of the layer norm behind the attention
  at::Tensor inter_w, inter_b;    // [I, H], [I]
  at::Tensor output_w, output_b;  // [H, I], [H]
  at::Tensor norm_w, norm_b;      // [H]: of the layer norm at the begin, or at the end
};

inline constexpr std::array<std::pair<const char*, at::Tensor TransformerWeights::*>, 12> kTransformerWeights{
    {
        {"attn_qkvw", &TransformerWeights::attn_qkvw},
        {"attn_qkvb", &TransformerWeights::attn_qkvb},
        {"attn_ow", &TransformerWeights::attn_ow},
        {"attn_ob", &TransformerWeights::attn_ob},
        {"attn_nw", &TransformerWeights::attn_nw},
        {"attn_nb", &TransformerWeights::attn_nb},
        {"inter_w", &TransformerWeights::inter_w},
        {"inter_b", &TransformerWeights::inter_b},
        {"output_w", &TransformerWeights::output_w},
        {"output_b", &TransformerWeights::output_b},
        {"norm_w", &TransformerWeights::norm_w},
        {"norm_b", &TransformerWeights::norm_b},
    }};

/// Returns the layer's output, of the shape and dtype of hidden_states.
///
/// hidden_states: [batch, sequence, H] in float32, bfloat16, float16 or float64, on the CPU or a CUDA device.
/// attention_mask: added to the scores, [batch or 1, heads or 1, sequence or 1, sequence], floating, no
/// gradient comes to it; undefined: none. Matrices have the dtype of hidden_states, vectors that or float32.
/// Under autocast states and matrices are cast. config: checked(). Throws UsageError that names the layer and
/// the tensor, also for more sequences than batch_size. Its backward throws NotSupportedError where it is to
/// be differentiated again, and UsageError for normalize_invertible where a norm weight is 0.
at::Tensor transformer_layer(const at::Tensor& hidden_states, const at::Tensor& attention_mask,
                             const TransformerWeights& weights, const DeepSpeedTransformerConfig& config,
                             bool is_training);

}  // namespace deepspeed::ops
