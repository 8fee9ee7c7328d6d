// The softmax of attention: scaled scores plus an additive mask, over the last dimension.
//
// Scores are [..., keys], with up to 6 dimensions. The mask may be undefined. Otherwise it broadcasts to the
// scores and has all `keys`, e.g. [batch, 1, 1, keys] or [queries, keys]. Dtypes: fp32, bf16, fp16 or fp64;
// the mask has the scores' dtype or fp32. Arithmetic is fp32 (fp64). As in torch, a row that -inf masks
// completely is nan. Devices: CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Returns softmax(scale * scores + mask), contiguous, of the scores' dtype.
at::Tensor masked_softmax(const at::Tensor& scores, const at::Tensor& mask, double scale);
/// Writes the softmax over `scores`, which is contiguous.
void masked_softmax_(const at::Tensor& scores, const at::Tensor& mask, double scale);

/// Returns the gradient of the scores: scale * output * (grad_output - sum(grad_output * output)).
at::Tensor masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output, double scale);
/// Writes the scores' gradient over `grad`, the contiguous gradient of the output.
void masked_softmax_backward_(const at::Tensor& grad, const at::Tensor& output, double scale);

}  // namespace deepspeed::kernels
