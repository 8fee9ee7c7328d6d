// Dropout whose mask is a function of a seed, an offset and the element's index (arguments/philox.h). No mask
// is kept: the backward makes it again. A mask has equal bits for any number of threads, on the CPU and on
// CUDA.
//
// Dtypes: fp32, bf16, fp16 or fp64. Elements count in the order of the contiguous tensor. A dropped element
// is multiplied by 0, as torch does, so that infinities and nans become nan.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/philox.h"

namespace deepspeed::kernels {

/// Returns a seed and an offset that the default generator of `device` gives once: manual_seed() repeats
/// them, and what restores the generator's state brings them back. A CUDA generator moves on by 4.
Philox next_philox(const at::Device& device);

/// Returns input * keep / (1 - ratio), where `keep` is 0 with probability `ratio`, in [0, 1], and else 1. A
/// ratio of 0 draws nothing. This is its own backward: dropout(grad_output, ratio, philox).
at::Tensor dropout(const at::Tensor& input, double ratio, const Philox& philox);
/// Does so in place. `values` is contiguous.
void dropout_(const at::Tensor& values, double ratio, const Philox& philox);

/// Returns dropout(input + bias) + residual. `input` is [..., n], `bias` [n] or undefined, of input's dtype
/// or fp32; `residual` as input, or undefined. Outside of training the ratio is 0.
at::Tensor bias_dropout_residual(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& residual,
                                 double ratio, const Philox& philox);

struct BiasDropoutGradients {
  at::Tensor input;  // as grad_output
  at::Tensor bias;   // undefined without a bias; dtype of bias
};

/// Returns the gradients of input and bias; that of the residual is `grad_output`. The values of `bias` are
/// not read. On the CPU the result does not depend on the number of threads.
BiasDropoutGradients bias_dropout_residual_backward(const at::Tensor& grad_output, const at::Tensor& bias,
                                                    double ratio, const Philox& philox);

}  // namespace deepspeed::kernels
