// The fused operators with autograd: `deepspeed.ops`. Each computes in one pass over its tensors what takes
// several operators of torch one pass each.
//
// Tensors are fp32, bf16, fp16 or fp64, on the CPU or on CUDA. Arithmetic and sums are fp32, or fp64 for fp64
// tensors. A parameter (weight, bias) has its input's dtype; for 16-bit inputs it may also be fp32. Shapes
// and dtypes that do not fit raise UsageError; there is no silent fallback. There is no second derivative:
// create_graph raises NotSupportedError. Parameters that ZeRO has partitioned may be passed as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::ops {

using OptionalTensor = std::optional<at::Tensor>;

/// Returns (x - mean) / sqrt(variance + eps) * weight + bias.
///
/// Mean and variance are those of the last dimension. `input` is [..., n]. `weight` and `bias` are [n], and
/// may be left out.
DEEPSPEED_API at::Tensor layer_norm(const at::Tensor& input, const OptionalTensor& weight = {},
                                    const OptionalTensor& bias = {}, double eps = 1e-5);
/// Returns layer_norm(input + residual) and that sum, which is the next residual.
DEEPSPEED_API std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& input,
                                                               const at::Tensor& residual,
                                                               const OptionalTensor& weight = {},
                                                               const OptionalTensor& bias = {},
                                                               double eps = 1e-5);

/// Returns x / sqrt(mean(x^2) + eps) * weight over the last dimension. The product is rounded once, as by
/// torch.rms_norm.
DEEPSPEED_API at::Tensor rms_norm(const at::Tensor& input, const OptionalTensor& weight = {},
                                  double eps = 1e-6);
/// Returns rms_norm(input + residual) and that sum, which is the next residual.
DEEPSPEED_API std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input,
                                                             const at::Tensor& residual,
                                                             const OptionalTensor& weight = {},
                                                             double eps = 1e-6);

/// Returns GELU of input + bias, in its tanh form. `input` is [..., n], `bias` is [n] or left out.
DEEPSPEED_API at::Tensor bias_gelu(const at::Tensor& input, const OptionalTensor& bias = {});

/// Returns silu(gate) * up. Both tensors have the same shape.
DEEPSPEED_API at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Returns silu(gate) * up, [..., n]. The argument holds gate, then up: [..., 2 n].
DEEPSPEED_API at::Tensor swiglu(const at::Tensor& gate_and_up);

/// Returns input * mask / (1 - ratio). The mask is 0 with probability `ratio`, otherwise 1.
///
/// The mask is not kept: backward computes it again. Random numbers come from the generator of the input's
/// device. Without `training` the result is `input`.
DEEPSPEED_API at::Tensor dropout(const at::Tensor& input, double ratio = 0.5, bool training = true);
/// Returns dropout(input + bias) + residual. `input` and `residual` are [..., n]; `bias` is [n] or left out.
DEEPSPEED_API at::Tensor bias_dropout_residual(const at::Tensor& input, const OptionalTensor& bias,
                                               const at::Tensor& residual, double ratio = 0.5,
                                               bool training = true);

/// Returns softmax(scale * scores + mask) over the last dimension.
///
/// Scores are [..., keys], with at most 6 dimensions. The mask broadcasts to the scores, and its last
/// dimension is `keys`. Its elements are 0 for a key that counts and -inf for one that does not. The mask may
/// also hold other numbers, such as a learned bias.
DEEPSPEED_API at::Tensor masked_softmax(const at::Tensor& scores, const OptionalTensor& mask = {},
                                        double scale = 1.0);

enum class RotaryPairs {
  kHalves,      // elements i and i + rotary / 2 are a pair, as in GPT-NeoX and Llama
  kNeighbours,  // elements 2 i and 2 i + 1 are a pair, as in GPT-J
};
struct RotaryTables {
  at::Tensor cos, sin;  // [positions, rotary / 2]
};
/// Returns cos and sin of position * base^(-2 i / rotary), each [positions, rotary / 2]. `rotary` is the
/// number of elements of a head that are rotated. An fp64 input of rotary_embedding() needs fp64 tables, any
/// other input fp32 ones.
DEEPSPEED_API RotaryTables rotary_tables(int64_t positions, int64_t rotary, double base = 10000.0,
                                         const at::Device& device = at::kCPU, int64_t first_position = 0,
                                         at::ScalarType dtype = at::kFloat);
/// Rotates heads [batch, heads, positions, dim] by their positions. The result has the input's strides.
///
/// `cos` and `sin` are [positions, rotary / 2] or [batch, positions, rotary / 2], with rotary <= dim. A
/// head's elements from `rotary` on stay unchanged. The tables get no gradients.
DEEPSPEED_API at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cos,
                                          const at::Tensor& sin, RotaryPairs pairs = RotaryPairs::kHalves);

/// Returns rows of `weight`, which is [num_embeddings, dim].
///
/// `indices` is [...], int64 or int32; the result is [..., dim]. The row `padding_index` gets no gradient.
/// The gradient is dense; on the CPU its sums have a fixed order.
DEEPSPEED_API at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices,
                                   std::optional<int64_t> padding_index = {});

enum class Reduction { kMean, kSum, kNone };

struct LinearCrossEntropyOptions {
  int64_t ignore_index = -100;   // rows with this target do not count
  double label_smoothing = 0.0;  // in [0, 1]
  Reduction reduction = Reduction::kMean;
  // Says whether forward also computes the gradients and keeps them until backward. This saves computing the
  // logits a second time. If false, and always for kNone, backward computes the logits again.
  bool gradients_in_forward = true;
  // Number of rows of logits that exist at a time. 0 chooses it. On the CPU that is as many as fit in 64 MiB
  // in fp32, at least 32. On CUDA it is all rows if the weight's gradient is computed and they fit in an
  // eighth of the free memory, otherwise as many as fit in that eighth and in 1 GiB.
  int64_t chunk_rows = 0;
};

/// Returns the cross entropy of the logits hidden weight^T + bias, without keeping all logits.
///
/// Only a chunk of rows of logits exists at a time. `hidden` is [..., features], `weight` is [classes,
/// features], `bias` is [classes] or left out, and `targets` is [...], int64. The loss is fp32, or fp64 for
/// fp64 tensors. An fp32 weight with a 16-bit `hidden` gives fp32 logits. fp16 gradients that forward
/// computes are kept in the middle of fp16's range, since the loss scale comes only later. Under autocast
/// hidden, weight and bias are cast to its dtype. On the CPU a target outside of [0, classes) raises
/// UsageError; on CUDA it makes the loss nan.
DEEPSPEED_API at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                              const at::Tensor& targets, const OptionalTensor& bias = {},
                                              const LinearCrossEntropyOptions& options = {});

}  // namespace deepspeed::ops
