// Dropout whose mask follows from a seed, an offset and the element's index (arguments/philox.h). The mask is
// not kept; the backward makes it again. Masks have equal bits for any number of threads, on the CPU and on
// CUDA.
//
// Dtypes: fp32, bf16, fp16 or fp64. Elements are counted in the order of the contiguous tensor. As in torch,
// a dropped element is multiplied by 0, so that infinities and nans become nan.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/philox.h"

namespace deepspeed::kernels {

/// Draws a new seed and offset from the default generator of `device`. manual_seed() repeats them, and so
/// does restoring the generator's state. A CUDA generator's offset advances by 4.
Philox next_philox(const at::Device& device);

/// Returns input * keep / (1 - ratio). `keep` is 0 with probability `ratio`, in [0, 1], and otherwise 1. A
/// ratio of 0 draws nothing. The backward is the same function: dropout(grad_output, ratio, philox).
at::Tensor dropout(const at::Tensor& input, double ratio, const Philox& philox);
/// Applies dropout in place. `values` is contiguous.
void dropout_(const at::Tensor& values, double ratio, const Philox& philox);

/// Returns dropout(input + bias) + residual. `input` is [..., n], `bias` [n] or undefined, in input's dtype
/// or fp32. `residual` is like input, or undefined. Outside of training the ratio is 0.
at::Tensor bias_dropout_residual(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& residual,
                                 double ratio, const Philox& philox);

struct BiasDropoutGradients {
  at::Tensor input;  // like grad_output
  at::Tensor bias;   // in the dtype of bias; undefined without a bias
};

/// Returns the gradients of input and bias; the residual's is `grad_output`. The values of `bias` are not
/// read. On the CPU the result does not depend on the number of threads.
BiasDropoutGradients bias_dropout_residual_backward(const at::Tensor& grad_output, const at::Tensor& bias,
                                                    double ratio, const Philox& philox);

}  // namespace deepspeed::kernels
