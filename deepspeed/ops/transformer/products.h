// Matrix products in a dtype that the device multiplies fast.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Returns the dtype in which matrix products of tensors like this one are computed.
///
/// That is the tensor's dtype, or float32 for 16 bits on a CPU without instructions for them. On such a CPU
/// torch's own 16-bit products take tens of times as long.
at::ScalarType product_type(const at::Tensor& tensor);

/// Returns a b for [m, k] and [k, n], or for batches [b, m, k] and [b, k, n].
///
/// Strides may be any. The result is contiguous and has a's dtype, rounded once.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// Writes a b to `result`, [b, m, n], which is contiguous. `a` and `b` are batches.
void product_out(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

/// Returns c + a b, [m, n]. `c` may be [n], which is added to each row, and may have another dtype.
at::Tensor add_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b);

}  // namespace deepspeed::ops
