// 1. Without dropout, on the CPU, torch's flash attention runs on views of qkv, forward and backward.
// 2. Else heads are copied apart, [batch * heads, sequence, d]; scores become probabilities in place
//    (masked_softmax_), which are dropped and multiplied by the values.
// 3. Backward takes the same steps from the end. The gradients of queries, keys and values are written into
// one
//    tensor, from which one copy makes the gradient of qkv.
#include "deepspeed/ops/transformer/attention.h"

#include <cmath>
#include <optional>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/ops/transformer/products.h"

namespace deepspeed::ops {
namespace {

struct HeadSizes {
  HeadSizes(const AttentionCall& call, int64_t hidden)
      : batch(call.batch), sequence(call.sequence), heads(call.heads), width(hidden / call.heads) {}
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }

  int64_t batch, sequence, heads, width;
};

bool uses_flash(const at::Tensor& tensor, const AttentionCall& call) {
  return tensor.is_cpu() && call.dropout_ratio == 0;
}

std::optional<at::Tensor> optional_mask(const AttentionCall& call) {
  return call.mask.defined() ? std::optional<at::Tensor>(call.mask) : std::nullopt;
}

/// Views [T, n H] as n of [batch, heads, sequence, d]: [n, batch, heads, sequence, d].
at::Tensor by_heads(const at::Tensor& tokens, const HeadSizes& sizes) {
  return tokens.view({sizes.batch, sizes.sequence, -1, sizes.heads, sizes.width}).permute({2, 0, 3, 1, 4});
}

/// Undoes by_heads() by a copy: [T, n H].
at::Tensor by_tokens(const at::Tensor& heads, const HeadSizes& sizes) {
  return heads.view({-1, sizes.batch, sizes.heads, sizes.sequence, sizes.width})
      .permute({1, 3, 0, 2, 4})
      .reshape({sizes.batch * sizes.sequence, -1});
}

/// Copies [T, n H] to [n, batch * heads, sequence, d].
at::Tensor split_heads(const at::Tensor& tokens, const HeadSizes& sizes) {
  return by_heads(tokens, sizes)
      .contiguous()
      .view({-1, sizes.batch * sizes.heads, sizes.sequence, sizes.width});
}

AttentionResult flash_attention(const at::Tensor& qkv, const AttentionCall& call, const HeadSizes& sizes) {
  const at::Tensor heads = by_heads(qkv.to(product_type(qkv)), sizes);
  const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads[0], heads[1], heads[2], 0.0, false, optional_mask(call), sizes.scale());
  const at::Tensor context =
      output.transpose(1, 2).reshape({sizes.batch * sizes.sequence, -1}).to(qkv.scalar_type());
  return {context, {qkv, logsumexp}};
}

at::Tensor flash_attention_backward(const at::Tensor& grad_context, const at::Tensor& context,
                                    const at::Tensor& qkv, const at::Tensor& logsumexp,
                                    const AttentionCall& call, const HeadSizes& sizes) {
  const at::ScalarType type = product_type(qkv);
  const at::Tensor heads = by_heads(qkv.to(type), sizes);
  const auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      by_heads(grad_context.to(type), sizes)[0], heads[0], heads[1], heads[2],
      by_heads(context.to(type), sizes)[0], logsumexp, 0.0, false, optional_mask(call), sizes.scale());
  const at::Tensor gradient =
      at::empty({sizes.batch, sizes.sequence, 3, sizes.heads, sizes.width}, qkv.options());
  gradient.select(2, 0).copy_(queries.transpose(1, 2));
  gradient.select(2, 1).copy_(keys.transpose(1, 2));
  gradient.select(2, 2).copy_(values.transpose(1, 2));
  return gradient.view(qkv.sizes());
}

at::Tensor scores_by_heads(const at::Tensor& scores, const HeadSizes& sizes) {
  return scores.view({sizes.batch, sizes.heads, sizes.sequence, sizes.sequence});
}

}  // namespace

AttentionResult attention(const at::Tensor& qkv, const AttentionCall& call) {
  const HeadSizes sizes(call, qkv.size(1) / 3);
  if (uses_flash(qkv, call)) return flash_attention(qkv, call, sizes);
  const at::Tensor heads = split_heads(qkv, sizes);
  const at::Tensor probabilities = product(heads[0], heads[1].transpose(1, 2));
  kernels::masked_softmax_(scores_by_heads(probabilities, sizes), call.mask, sizes.scale());
  AttentionResult result{{}, {heads, probabilities}};
  at::Tensor dropped = probabilities;
  if (call.dropout_ratio > 0) {
    dropped = kernels::dropout(probabilities, call.dropout_ratio, call.philox);
    if (!call.drops_again) result.kept.push_back(dropped);
  }
  result.context = by_tokens(product(dropped, heads[2]), sizes);
  return result;
}

at::Tensor attention_backward(const at::Tensor& grad_context, const at::Tensor& context,
                              const std::vector<at::Tensor>& kept, const AttentionCall& call) {
  const HeadSizes sizes(call, grad_context.size(1));
  if (uses_flash(grad_context, call))
    return flash_attention_backward(grad_context, context, kept[0], kept[1], call, sizes);
  const at::Tensor &heads = kept[0], &probabilities = kept[1];
  at::Tensor dropped = probabilities;
  if (call.dropout_ratio > 0) {
    dropped = call.drops_again ? kernels::dropout(probabilities, call.dropout_ratio, call.philox) : kept[2];
  }
  const at::Tensor grad_output = split_heads(grad_context, sizes)[0];
  const at::Tensor gradients = at::empty_like(heads);
  product_out(gradients[2], dropped.transpose(1, 2), grad_output);
  const at::Tensor grad_scores = product(grad_output, heads[2].transpose(1, 2));
  kernels::dropout_(grad_scores, call.dropout_ratio, call.philox);
  kernels::masked_softmax_backward_(grad_scores, probabilities, sizes.scale());
  product_out(gradients[0], grad_scores, heads[1]);
  product_out(gradients[1], grad_scores.transpose(1, 2), heads[0]);
  return by_tokens(gradients, sizes);
}

}  // namespace deepspeed::ops
