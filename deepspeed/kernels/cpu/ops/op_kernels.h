// CPU kernels of the fused operators. run_cpu() distributes the work over threads. Functions ending in _simd
// do a part of it in one thread, with the machine's best instruction set. No result depends on the number of
// threads.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/op_arrays.h"

namespace deepspeed::kernels {

/// Normalizes rows by the formulas of kernels/ops/normalization.h; norm_simd() the rows [begin, end).
void run_cpu(const NormArrays& arrays);
void norm_simd(const NormArrays& arrays, int64_t begin, int64_t end);
/// Writes the input's gradient, and each part's sums for the gradients of weight and bias.
void run_cpu(const NormBackwardArrays& arrays);
void norm_backward_simd(const NormBackwardArrays& arrays, int64_t part);

/// Computes bias + GELU by the formulas of kernels/ops/activations.h. The _simd functions compute the
/// elements [begin, end). If `sums`, wide [columns], is not null, the elements are whole rows, and their bias
/// gradients are added to it.
void run_cpu(const BiasGeluArrays& arrays);
void bias_gelu_simd(const BiasGeluArrays& arrays, int64_t begin, int64_t end);
void bias_gelu_backward_simd(const BiasGeluArrays& arrays, int64_t begin, int64_t end, void* sums);
/// Computes SwiGLU by the formulas of kernels/ops/activations.h; the _simd functions the rows [begin, end).
void run_cpu(const SwigluArrays& arrays);
void swiglu_simd(const SwigluArrays& arrays, int64_t begin, int64_t end);
void swiglu_backward_simd(const SwigluArrays& arrays, int64_t begin, int64_t end);

/// Writes dropout(input + bias) + residual. dropout_simd() writes the elements [begin, end). If `sums`, wide
/// [columns], is not null, the elements are whole rows, and the output rows are added to it.
void run_cpu(const DropoutArrays& arrays);
void dropout_simd(const DropoutArrays& arrays, int64_t begin, int64_t end, void* sums);

/// Computes the softmax, or its gradient, by the formulas of kernels/ops/masked_softmax.h. The _simd
/// functions take the rows [begin, end).
void run_cpu(const MaskedSoftmaxArrays& arrays);
void masked_softmax_simd(const MaskedSoftmaxArrays& arrays, int64_t begin, int64_t end);
void run_cpu(const SoftmaxBackwardArrays& arrays);
void softmax_backward_simd(const SoftmaxBackwardArrays& arrays, int64_t begin, int64_t end);

/// Rotates heads by the formula of kernels/ops/rotary.h. rotary_simd() takes the indices [begin, end) of
/// batch * heads * positions; each stands for a head at one position.
void run_cpu(const RotaryArrays& arrays);
void rotary_simd(const RotaryArrays& arrays, int64_t begin, int64_t end);

/// Writes losses and logits' gradients of rows by the formula of kernels/ops/cross_entropy.h. Both are nan
/// for a target that is neither a class nor ignore_index. cross_entropy_simd() takes the rows [begin, end).
void run_cpu(const CrossEntropyArrays& arrays);
void cross_entropy_simd(const CrossEntropyArrays& arrays, int64_t begin, int64_t end);

/// Links the positions that read each row of the embedding table. A row's positions are first[row],
/// next[first[row]] and so on, until -1. `rows` lists the table rows that have a position, in the order of
/// their first positions.
struct PositionChains {
  const int64_t *rows = nullptr, *first = nullptr, *next = nullptr;
};
/// Sums the gradients of the positions that read each table row. Indices are in range. `grad_weight` is
/// zeroed, and rows without a position stay 0.
void run_cpu(const EmbeddingGradientArrays& arrays);
/// Sums the gradients of the table rows chains.rows[begin, end).
void embedding_gradient_simd(const EmbeddingGradientArrays& arrays, const PositionChains& chains,
                             int64_t begin, int64_t end);

}  // namespace deepspeed::kernels
