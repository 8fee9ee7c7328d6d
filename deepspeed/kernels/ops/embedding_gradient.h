// The gradient of an embedding's weight: the sum, for each row, of the gradients of the positions that took
// it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Returns the gradient of the weight, [num_embeddings, dim], dense, of grad_output's dtype (fp32, bf16, fp16
/// or fp64). `grad_output` is [..., dim], `indices` [...], int64 or int32. The row `padding_index` stays 0; a
/// negative one means none. Sums are fp32 (fp64). On the CPU positions of a row are chained, not sorted, and
/// add up in their order: the result does not depend on the number of threads, and an index outside of the
/// table is a UsageError. On CUDA rows are added by atomics, in no fixed order, and an index outside makes
/// row 0 nan; under torch.use_deterministic_algorithms() ATen's sorting kernel takes their
/// place.
at::Tensor embedding_gradient(const at::Tensor& grad_output, const at::Tensor& indices,
                              int64_t num_embeddings, int64_t padding_index = -1);

}  // namespace deepspeed::kernels
