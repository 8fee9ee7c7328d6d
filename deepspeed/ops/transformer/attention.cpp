// If one of torch's operators can take the call, that operator computes everything (torch_attention). The
// operators take views of qkv, [batch, heads, sequence, d]. Their outputs are laid out so that the context is
// a view and not a copy. Memory-efficient attention writes the gradients of queries, keys and values side by
// side, as qkv has them. The gradients of other operators are copied into that layout.
//
// Otherwise:
//
// 1. Heads are copied to [batch * heads, sequence, d].
// 2. Their scores become probabilities in place (masked_softmax_).
// 3. Probabilities are dropped and multiplied by the values.
//
// Backward reverses these steps. It writes the gradients of queries, keys and values into one tensor, and
// copies that into the gradient of qkv.
#include "deepspeed/ops/transformer/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/ops/transformer/products.h"

namespace deepspeed::ops {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t kAlignment = 8;  // in elements, for heads and for rows of the mask

struct HeadSizes {
  HeadSizes(const AttentionCall& call, int64_t hidden)
      : batch(call.batch), sequence(call.sequence), heads(call.heads), width(hidden / call.heads) {}
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }

  int64_t batch, sequence, heads, width;
};

/// Views [T, n H] as [n, batch, heads, sequence, d]. T is batch * sequence, H is heads * d.
at::Tensor by_heads(const at::Tensor& tokens, const HeadSizes& sizes) {
  return tokens.view({sizes.batch, sizes.sequence, -1, sizes.heads, sizes.width}).permute({2, 0, 3, 1, 4});
}

bool is_row_of_keys(const at::Tensor& mask) { return mask.size(1) == 1 && mask.size(2) == 1; }

/// Returns the mask in `dtype`, with a lower bound; undefined if there is none.
///
/// Without the bound, a score plus the lowest number could be -inf, and a fully hidden row would be nan.
at::Tensor bias_of(const AttentionCall& call, at::ScalarType dtype) {
  if (!call.mask.defined()) return {};
  return call.mask.clamp_min(dtype == at::kHalf ? -65504.0 : -1e38).to(dtype);
}

/// Returns the mask for memory-efficient attention: expanded, with rows at multiples of kAlignment.
at::Tensor aligned_bias_of(const AttentionCall& call, const at::Tensor& query) {
  const at::Tensor bias = bias_of(call, query.scalar_type());
  if (!bias.defined()) return bias;
  std::vector<int64_t> sizes = bias.sizes().vec();
  const int64_t keys = sizes.back();
  sizes.back() = (keys + kAlignment - 1) / kAlignment * kAlignment;
  const at::Tensor aligned = at::empty(sizes, bias.options()).narrow(-1, 0, keys);
  aligned.copy_(bias);
  return aligned.expand({query.size(0), query.size(1), query.size(2), query.size(2)});
}

std::optional<at::Tensor> or_none(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Returns the operator that torch chooses for training. Backward supports fewer sizes than forward.
at::SDPBackend torch_choice(const at::Tensor& qkv, const AttentionCall& call, const HeadSizes& sizes) {
  const at::AutoGradMode with_grad(true);
  const at::Tensor heads = by_heads(qkv.detach(), sizes);
  std::array<at::Tensor, 3> learned;
  for (int i = 0; i < 3; ++i) learned[static_cast<size_t>(i)] = heads[i].detach().set_requires_grad(true);
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(learned[0], learned[1], learned[2],
                                                           or_none(bias_of(call, qkv.scalar_type())),
                                                           call.dropout_ratio, false, sizes.scale()));
}

/// Returns the three gradients in one view, shaped like qkv. Returns an undefined tensor
/// unless they lie in memory in that order.
at::Tensor joined_in_place(const Gradients& gradients, const HeadSizes& sizes, const at::Tensor& qkv) {
  const auto [of_queries, of_keys, of_values] = gradients;
  const int64_t hidden = sizes.heads * sizes.width, row = 3 * hidden, begin = of_queries.storage_offset();
  const std::array<int64_t, 4> strides = {sizes.sequence * row, sizes.width, row, 1};
  const auto lies = [&](const at::Tensor& heads, int64_t number) {
    return heads.is_alias_of(of_queries) && heads.strides() == at::IntArrayRef(strides) &&
           heads.storage_offset() == begin + number * hidden;
  };
  if (!lies(of_queries, 0) || !lies(of_keys, 1) || !lies(of_values, 2)) return {};
  return of_queries.as_strided(qkv.sizes(), {row, 1}, begin);
}

/// Joins the three gradients in qkv's shape, without a copy if possible. On a GPU this takes at most one
/// launch.
at::Tensor joined(const Gradients& gradients, const HeadSizes& sizes, const at::Tensor& qkv) {
  if (const at::Tensor there = joined_in_place(gradients, sizes, qkv); there.defined()) return there;
  const auto [of_queries, of_keys, of_values] = gradients;
  const std::array<at::Tensor, 3> by_token = {of_queries.transpose(1, 2), of_keys.transpose(1, 2),
                                              of_values.transpose(1, 2)};
  if (!qkv.is_cpu() && of_queries.scalar_type() == qkv.scalar_type())
    return at::stack(by_token, 2).view(qkv.sizes());
  const at::Tensor all = at::empty({sizes.batch, sizes.sequence, 3, sizes.heads, sizes.width}, qkv.options());
  for (int64_t i = 0; i < 3; ++i) all.select(2, i).copy_(by_token[static_cast<size_t>(i)]);
  return all.view(qkv.sizes());
}

/// Returns the operator of torch that can compute a call. If none can, returns kWritten, the library's own.
///
/// On the CPU flash attention takes calls without dropout. On CUDA torch chooses by the sizes, the device and
/// its own switches (torch.backends.cuda.enable_flash_sdp() and others). On CUDA no operator takes float64,
/// heads whose size is not a multiple of 8, a dropout ratio of 1, or a dropout with its own seed. In 16 bits
/// none takes a mask that differs between heads or queries, because the operator would round it to 16 bits.
AttentionKind torch_attention_kind(const at::Tensor& qkv, const AttentionCall& call) {
  if (qkv.is_cpu()) return call.dropout_ratio == 0 ? AttentionKind::kFlashOfCpu : AttentionKind::kWritten;
  const HeadSizes sizes(call, qkv.size(1) / 3);
  const bool draws_by_torch = call.dropout_ratio == 0 || (call.dropout_ratio < 1 && !call.has_own_seed);
  const bool keeps_mask = !call.mask.defined() || qkv.element_size() == 4 || is_row_of_keys(call.mask);
  if (qkv.scalar_type() == at::kDouble || !draws_by_torch || !keeps_mask || sizes.width % kAlignment != 0)
    return AttentionKind::kWritten;
  switch (torch_choice(qkv, call, sizes)) {
    case at::SDPBackend::flash_attention:
      return call.mask.defined() ? AttentionKind::kWritten : AttentionKind::kFlash;
    case at::SDPBackend::efficient_attention:
      return AttentionKind::kEfficient;
    case at::SDPBackend::cudnn_attention:
      return AttentionKind::kCudnn;
    default:
      return AttentionKind::kWritten;
  }
}

/// Computes attention() by an operator that torch_attention_kind() returned.
AttentionResult torch_attention(const at::Tensor& qkv, const AttentionCall& call, AttentionKind kind) {
  const HeadSizes sizes(call, qkv.size(1) / 3);
  const at::Tensor heads = by_heads(qkv.to(product_type(qkv)), sizes);
  const at::Tensor queries = heads[0], keys = heads[1], values = heads[2];
  const double ratio = call.dropout_ratio, scale = sizes.scale();
  AttentionResult result{kind, {}, {qkv}};
  const auto take = [&](const at::Tensor& output, std::initializer_list<at::Tensor> kept) {
    result.context = output.transpose(1, 2).reshape({sizes.batch * sizes.sequence, -1}).to(qkv.scalar_type());
    result.kept.insert(result.kept.end(), kept);
  };
  if (kind == AttentionKind::kFlashOfCpu) {
    const auto [output, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, false, or_none(call.mask), scale);
    take(output, {sums});
  } else if (kind == AttentionKind::kFlash) {
    const auto [output, sums, of_queries, of_keys, most_queries, most_keys, state, unused, debug] =
        at::_scaled_dot_product_flash_attention(queries, keys, values, ratio, false, false, scale);
    take(output, {sums, state, unused});
  } else if (kind == AttentionKind::kEfficient) {
    const auto [output, sums, seed, offset] = at::_scaled_dot_product_efficient_attention(
        queries, keys, values, or_none(aligned_bias_of(call, queries)), true, ratio, false, scale);
    take(output, {sums, seed, offset});
  } else {
    const auto [output, sums, of_queries, of_keys, most_queries, most_keys, seed, offset, debug] =
        at::_scaled_dot_product_cudnn_attention(queries, keys, values,
                                                or_none(bias_of(call, queries.scalar_type())), true, ratio,
                                                false, false, scale);
    take(output, {sums, seed, offset});
  }
  return result;
}

at::Tensor torch_attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                                    const AttentionCall& call) {
  const at::Tensor& qkv = result.kept[0];
  const HeadSizes sizes(call, grad_context.size(1));
  const at::ScalarType type = product_type(qkv);
  const at::Tensor heads = by_heads(qkv.to(type), sizes);
  const at::Tensor queries = heads[0], keys = heads[1], values = heads[2];
  const at::Tensor gradient = by_heads(grad_context.to(type), sizes)[0];
  const at::Tensor output = by_heads(result.context.to(type), sizes)[0], &sums = result.kept[1];
  const double ratio = call.dropout_ratio, scale = sizes.scale();
  if (result.kind == AttentionKind::kFlashOfCpu) {
    return joined(at::_scaled_dot_product_flash_attention_for_cpu_backward(
                      gradient, queries, keys, values, output, sums, 0.0, false, or_none(call.mask), scale),
                  sizes, qkv);
  }
  const at::Tensor &seed = result.kept[2], &offset = result.kept[3];
  if (result.kind == AttentionKind::kFlash) {
    return joined(at::_scaled_dot_product_flash_attention_backward(
                      gradient, queries, keys, values, output, sums, {}, {}, sizes.sequence, sizes.sequence,
                      ratio, false, seed, offset, scale),
                  sizes, qkv);
  }
  if (result.kind == AttentionKind::kEfficient) {
    const auto by_token = [](const at::Tensor& tensor) { return tensor.transpose(1, 2); };
    const auto [of_queries, of_keys, of_values, of_bias] = at::_efficient_attention_backward(
        by_token(gradient), by_token(queries), by_token(keys), by_token(values),
        or_none(aligned_bias_of(call, queries)), by_token(output), {}, {}, sizes.sequence, sizes.sequence,
        sums, ratio, seed, offset, /*custom_mask_type=*/0, /*bias_requires_grad=*/false, scale, {}, {},
        /*shared_storage_dqdkdv=*/true);
    return joined({by_token(of_queries), by_token(of_keys), by_token(of_values)}, sizes, qkv);
  }
  return joined(
      at::_scaled_dot_product_cudnn_attention_backward(gradient, queries, keys, values, output, sums, seed,
                                                       offset, bias_of(call, queries.scalar_type()), {}, {},
                                                       sizes.sequence, sizes.sequence, ratio, false, scale),
      sizes, qkv);
}

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
