// If one of torch's operators takes the call, it computes everything (torch_attention.h). Otherwise:
//
// 1. Heads are copied to [batch * heads, sequence, d].
// 2. Their scores become probabilities in place (masked_softmax_).
// 3. Probabilities are dropped and multiplied by the values.
//
// Backward reverses these steps. It writes the gradients of queries, keys and values into one tensor, and
// copies that into the gradient of qkv.
#include "deepspeed/ops/transformer/attention.h"

#include <ATen/ops/empty_like.h>

#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/ops/transformer/heads.h"
#include "deepspeed/ops/transformer/products.h"
#include "deepspeed/ops/transformer/torch_attention.h"

namespace deepspeed::ops {
namespace {

/// Undoes by_heads() with a copy. Returns [T, n H].
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

at::Tensor scores_by_heads(const at::Tensor& scores, const HeadSizes& sizes) {
  return scores.view({sizes.batch, sizes.heads, sizes.sequence, sizes.sequence});
}

}  // namespace

AttentionResult attention(const at::Tensor& qkv, const AttentionCall& call) {
  const AttentionKind kind = torch_attention_kind(qkv, call);
  if (kind != AttentionKind::kWritten) return torch_attention(qkv, call, kind);
  const HeadSizes sizes(call, qkv.size(1) / 3);
  const at::Tensor heads = split_heads(qkv, sizes);
  const at::Tensor probabilities = product(heads[0], heads[1].transpose(1, 2));
  kernels::masked_softmax_(scores_by_heads(probabilities, sizes), call.mask, sizes.scale());
  AttentionResult result{kind, {}, {heads, probabilities}};
  at::Tensor dropped = probabilities;
  if (call.dropout_ratio > 0) {
    dropped = kernels::dropout(probabilities, call.dropout_ratio, call.philox);
    if (!call.drops_again) result.kept.push_back(dropped);
  }
  result.context = by_tokens(product(dropped, heads[2]), sizes);
  return result;
}

at::Tensor attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                              const AttentionCall& call) {
  if (result.kind != AttentionKind::kWritten) return torch_attention_backward(grad_context, result, call);
  const HeadSizes sizes(call, grad_context.size(1));
  const at::Tensor &heads = result.kept[0], &probabilities = result.kept[1];
  at::Tensor dropped = probabilities;
  if (call.dropout_ratio > 0) {
    dropped =
        call.drops_again ? kernels::dropout(probabilities, call.dropout_ratio, call.philox) : result.kept[2];
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
