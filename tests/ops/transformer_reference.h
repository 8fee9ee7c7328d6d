// The transformer layer from plain operators of torch, whose gradients are autograd's: what the layer's own
// forward and backward are held against.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/layer_function.h"
#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::testing {

/// Factors 0 or 1 / (1 - ratio) of the three places of dropout; undefined ones drop nothing.
struct DropoutFactors {
  at::Tensor probabilities, attention_output, layer_output;
};

inline at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 double eps) {
  const at::Tensor centered = x - x.mean(-1, /*keepdim=*/true);
  return centered / (centered.square().mean(-1, /*keepdim=*/true) + eps).sqrt() * weight + bias;
}

inline at::Tensor reference_gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

inline at::Tensor times(const at::Tensor& x, const at::Tensor& factors) {
  return factors.defined() ? x * factors : x;
}

inline at::Tensor reference_layer(const at::Tensor& x, const at::Tensor& mask,
                                  const ops::TransformerWeights& w,
                                  const ops::DeepSpeedTransformerConfig& config,
                                  const DropoutFactors& factors = {}) {
  const int64_t batch = x.size(0), sequence = x.size(1), hidden = x.size(2), width = hidden / config.heads;
  const double eps = config.layer_norm_eps;
  const at::Tensor attended = config.pre_layer_norm ? reference_norm(x, w.norm_w, w.norm_b, eps) : x;
  const auto heads = [&](int64_t part) {
    const at::Tensor rows = w.attn_qkvw.narrow(0, part * hidden, hidden);
    const at::Tensor made = at::matmul(attended, rows.t()) + w.attn_qkvb.narrow(0, part * hidden, hidden);
    return made.view({batch, sequence, config.heads, width}).transpose(1, 2);
  };
  at::Tensor scores = at::matmul(heads(0), heads(1).transpose(2, 3)) / std::sqrt(static_cast<double>(width));
  if (mask.defined()) scores = scores + mask;
  const at::Tensor probabilities = times(at::softmax(scores, -1), factors.probabilities);
  const at::Tensor context =
      at::matmul(probabilities, heads(2)).transpose(1, 2).reshape({batch, sequence, hidden});
  const at::Tensor sum = x + times(at::matmul(context, w.attn_ow.t()) + w.attn_ob, factors.attention_output);
  const at::Tensor middle = reference_norm(sum, w.attn_nw, w.attn_nb, eps);
  const at::Tensor activated = reference_gelu(at::matmul(middle, w.inter_w.t()) + w.inter_b);
  const at::Tensor output = times(at::matmul(activated, w.output_w.t()) + w.output_b, factors.layer_output);
  if (config.pre_layer_norm) return sum + output;
  return reference_norm(middle + output, w.norm_w, w.norm_b, eps);
}

}  // namespace deepspeed::testing
