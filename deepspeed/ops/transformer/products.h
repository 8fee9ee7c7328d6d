// Products of matrices, in a type in which the device multiplies them fast.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Returns the dtype in which products of tensors like this one are computed: its own, or float32 for 16 bits
/// on a CPU without instructions for them, where torch's own products take tens of times as long.
at::ScalarType product_type(const at::Tensor& tensor);

/// Returns a b of [m, k] and [k, n], or of batches [b, m, k] and [b, k, n] of them. Any strides; the result
/// is contiguous and of a's dtype, rounded once.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// Writes a b of batches to `result`, which is contiguous.
void product_out(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

/// Returns c + a b, [m, n]. `c` may be [n], which is added to each row, and of another dtype.
at::Tensor add_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b);

}  // namespace deepspeed::ops
