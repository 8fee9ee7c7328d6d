// The parameters of a transformer layer in one table. Code that registers, checks, draws or copies them loops
// over it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/transformer_config.h"

namespace deepspeed::ops {

/// Holds a layer's parameters in DeepSpeed's names and order. Matrices are [out, in], as in torch's Linear.
struct TransformerWeights {
  at::Tensor attn_qkvw, attn_qkvb;  // rows for the queries, then the keys, then the values
  at::Tensor attn_ow, attn_ob;      // the attention's output
  at::Tensor attn_nw, attn_nb;      // the layer norm after the attention
  at::Tensor inter_w, inter_b;
  at::Tensor output_w, output_b;
  at::Tensor norm_w, norm_b;  // the layer norm at the beginning (pre_layer_norm) or at the end
};

/// Names a dimension's size. H is the hidden size, I the intermediate size.
enum class WeightSize { kNone, kHidden, kThreeHidden, kIntermediate };  // 0, H, 3H, I

/// Says how a new weight is filled. Matrices whose outputs are added to a residual may be drawn with a
/// smaller deviation (kNormalOfOutput).
enum class WeightStart { kZeros, kOnes, kNormal, kNormalOfOutput };

/// Describes one parameter of a layer.
struct TransformerWeight {
  const char* name;
  at::Tensor TransformerWeights::*member;
  WeightSize rows, columns;  // a vector has no columns
  WeightStart start;

  constexpr bool is_matrix() const { return columns != WeightSize::kNone; }
};

/// Lists all parameters of a layer. A bias follows its weight.
inline constexpr std::array<TransformerWeight, 12> kTransformerWeights = [] {
  using W = TransformerWeights;
  using enum WeightSize;
  using enum WeightStart;
  return std::array<TransformerWeight, 12>{{
      {"attn_qkvw", &W::attn_qkvw, kThreeHidden, kHidden, kNormal},
      {"attn_qkvb", &W::attn_qkvb, kThreeHidden, kNone, kZeros},
      {"attn_ow", &W::attn_ow, kHidden, kHidden, kNormalOfOutput},
      {"attn_ob", &W::attn_ob, kHidden, kNone, kZeros},
      {"attn_nw", &W::attn_nw, kHidden, kNone, kOnes},
      {"attn_nb", &W::attn_nb, kHidden, kNone, kZeros},
      {"inter_w", &W::inter_w, kIntermediate, kHidden, kNormal},
      {"inter_b", &W::inter_b, kIntermediate, kNone, kZeros},
      {"output_w", &W::output_w, kHidden, kIntermediate, kNormalOfOutput},
      {"output_b", &W::output_b, kHidden, kNone, kZeros},
      {"norm_w", &W::norm_w, kHidden, kNone, kOnes},
      {"norm_b", &W::norm_b, kHidden, kNone, kZeros},
  }};
}();

/// Returns a member's index in kTransformerWeights.
constexpr size_t index_of(at::Tensor TransformerWeights::*member) {
  size_t index = 0;
  while (kTransformerWeights[index].member != member) ++index;
  return index;
}

/// Returns a weight's sizes in a layer with this hidden and intermediate size.
std::vector<int64_t> sizes_of(const TransformerWeight& weight, int64_t hidden_size,
                              int64_t intermediate_size);

/// Returns the weights from a list in the table's order. Throws UsageError for a wrong number of tensors.
TransformerWeights weights_of(at::TensorList list);
/// Lists the weights in the table's order.
std::vector<at::Tensor> list_of(const TransformerWeights& weights);

/// Draws the matrices from N(0, initializer_range); sets norms to 1 and biases to 0.
///
/// With adjust_init_range the deviation of outputs is initializer_range / sqrt(2 num_hidden_layers). Throws
/// ConfigError if one of these keys is missing.
void draw_weights(const TransformerWeights& weights, const DeepSpeedTransformerConfig& config);

/// Returns weights joined from copies of another implementation's eight weights and biases.
/// transformer_layer.h lists those. Throws UsageError for a wrong number or shape. config: from checked().
TransformerWeights joined_weights(const DeepSpeedTransformerConfig& config,
                                  const std::vector<at::Tensor>& weights,
                                  const std::vector<at::Tensor>& biases);

}  // namespace deepspeed::ops
