// The fused operators with autograd: `deepspeed.ops`. Each makes in one pass over its tensors what several
// operators of torch make in as many.
//
// Tensors are fp32, bf16, fp16 or fp64, on the CPU or on CUDA; arithmetic and sums are fp32 (of fp64 fp64). A
// parameter (weight, bias) has its input's dtype or, beside 16 bits, fp32. Shapes and dtypes that do not fit
// are a UsageError, and never go another way. Backward cannot be differentiated itself: create_graph is a
// UsageError. Parameters that ZeRO has partitioned are taken as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::ops {

using OptionalTensor = std::optional<at::Tensor>;

/// Returns (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension. `input` is [..., n];
/// weight and bias are [n], or left out.
DEEPSPEED_API at::Tensor layer_norm(const at::Tensor& input, const OptionalTensor& weight = {},
                                    const OptionalTensor& bias = {}, double eps = 1e-5);
/// Returns layer_norm(input + residual) and that sum, which goes on as the next residual.
DEEPSPEED_API std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& input,
                                                               const at::Tensor& residual,
                                                               const OptionalTensor& weight = {},
                                                               const OptionalTensor& bias = {},
                                                               double eps = 1e-5);

/// Returns x / sqrt(mean(x^2) + eps) * weight over the last dimension. The product is rounded once, as
/// torch.rms_norm does.
DEEPSPEED_API at::Tensor rms_norm(const at::Tensor& input, const OptionalTensor& weight = {},
                                  double eps = 1e-6);
/// Returns rms_norm(input + residual) and that sum.
DEEPSPEED_API std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input,
                                                             const at::Tensor& residual,
                                                             const OptionalTensor& weight = {},
                                                             double eps = 1e-6);

/// Returns the tanh form of GELU of input + bias. `input` is [..., n], `bias` [n] or left out.
DEEPSPEED_API at::Tensor bias_gelu(const at::Tensor& input, const OptionalTensor& bias = {});

/// Returns silu(gate) * up. Both tensors have the same shape.
DEEPSPEED_API at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Returns silu(gate) * up, [..., n]. The argument holds gate, then up: [..., 2 n].
DEEPSPEED_API at::Tensor swiglu(const at::Tensor& gate_and_up);

/// Returns input * keep / (1 - ratio), where keep is 0 with probability `ratio`, else 1. The mask is not
/// kept: backward makes it again. Random numbers come from the generator of the input's device. Outside of
/// training it returns `input`.
DEEPSPEED_API at::Tensor dropout(const at::Tensor& input, double ratio = 0.5, bool training = true);
/// Returns dropout(input + bias) + residual. `input` and `residual` are [..., n], `bias` is [n] or left out.
DEEPSPEED_API at::Tensor bias_dropout_residual(const at::Tensor& input, const OptionalTensor& bias,
                                               const at::Tensor& residual, double ratio = 0.5,
                                               bool training = true);

/// Returns softmax(scale * scores + mask) over the last dimension. Scores are [..., keys], of at most 6
/// dimensions. The mask broadcasts to them and has all keys: 0 where a key counts, -inf where it does not, or
/// a bias, which may be learned.
DEEPSPEED_API at::Tensor masked_softmax(const at::Tensor& scores, const OptionalTensor& mask = {},
                                        double scale = 1.0);

enum class RotaryPairs {
  kHalves,      // element i turns with i + rotary / 2, as in GPT-NeoX and Llama
  kNeighbours,  // element 2 i turns with 2 i + 1, as in GPT-J
};
struct RotaryTables {
  at::Tensor cos, sin;  // [positions, rotary / 2]
};
/// Returns cos and sin, [positions, rotary / 2], of position * base^(-2 i / rotary). An fp64 input takes
/// tables of fp64, others those of fp32.
DEEPSPEED_API RotaryTables rotary_tables(int64_t positions, int64_t rotary, double base = 10000.0,
                                         const at::Device& device = at::kCPU, int64_t first_position = 0,
                                         at::ScalarType dtype = at::kFloat);
/// Returns heads [batch, heads, positions, dim] that are turned by their positions, in the input's strides.
/// `cos` and `sin` are [positions, rotary / 2] or [batch, positions, rotary / 2], with rotary <= dim, and
/// take no gradients.
DEEPSPEED_API at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cos,
                                          const at::Tensor& sin, RotaryPairs pairs = RotaryPairs::kHalves);

/// Returns rows of `weight` [num_embeddings, dim]. `indices` is [...], int64 or int32; the result is [...,
/// dim]. The row `padding_index` takes no gradient. The gradient is dense; on the CPU its sums have a fixed
/// order.
DEEPSPEED_API at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices,
                                   std::optional<int64_t> padding_index = {});

enum class Reduction { kMean, kSum, kNone };

struct LinearCrossEntropyOptions {
  int64_t ignore_index = -100;   // rows with this target do not count
  double label_smoothing = 0.0;  // in [0, 1]
  Reduction reduction = Reduction::kMean;
  // Make the gradients together with the losses, and keep them until backward: one product less. Else
  // backward makes the logits again, and nothing is kept. Losses of kNone always do the latter.
  bool gradients_in_forward = true;
  // Rows of logits that exist at a time. 0 takes as many as fit 64 MiB (on a CPU in fp32), at least 32; on
  // CUDA all if an eighth of the free memory holds them, else as many as fit a GiB.
  int64_t chunk_rows = 0;
};

/// Returns the cross entropy of the logits hidden weight^T + bias, fp32 (fp64), without ever keeping them: a
/// chunk of rows exists at a time. `hidden` is [..., features], `weight` [classes, features], `bias`
/// [classes] or left out, `targets` [...], int64. A weight of fp32 beside 16 bits makes logits of fp32. In
/// fp16 the gradients wait in the middle of its range, whatever loss scale comes. Under autocast hidden,
/// weight and bias are cast to its dtype. On the CPU a target outside of [0, classes) is a UsageError; on
/// CUDA it makes the loss nan.
DEEPSPEED_API at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                              const at::Tensor& targets, const OptionalTensor& bias = {},
                                              const LinearCrossEntropyOptions& options = {});

}  // namespace deepspeed::ops
