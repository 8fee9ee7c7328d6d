// The gradient of an embedding's weight: each row is the sum of the gradients of the positions that read it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Returns the dense gradient of the weight, [num_embeddings, dim], in grad_output's dtype. That is fp32,
/// bf16, fp16 or fp64; sums are fp32 (fp64). `grad_output` is [..., dim], `indices` [...], int64 or int32.
/// The row `padding_index` stays 0; a negative value means no such row.
///
/// On the CPU the positions that read a row are linked in a list, not sorted, and add up in order. The result
/// does not depend on the number of threads, and an index outside the table is a UsageError. On CUDA rows are
/// added with atomics, in no fixed order, and an index outside the table makes row 0 nan. Under
/// torch.use_deterministic_algorithms() ATen's sorting kernel is used on CUDA.
at::Tensor embedding_gradient(const at::Tensor& grad_output, const at::Tensor& indices,
                              int64_t num_embeddings, int64_t padding_index = -1);

}  // namespace deepspeed::kernels
