// The activations between the two products of a feed-forward block, with their bias or gate.
//
// Dtypes: fp32, bf16, fp16 or fp64, with fp32 (fp64) arithmetic. Devices: CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct BiasGeluGradients {
  at::Tensor input;  // like grad_output
  at::Tensor bias;   // in the dtype of bias; undefined without a bias
};

/// Returns GELU of x = input + bias in its tanh form (Hendrycks, Gimpel 2016).
///   GELU(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
/// `input` is [..., n], `bias` [n] or undefined. The bias has input's dtype, or fp32 next to a 16-bit input.
/// Inputs of any strides are read through their contiguous().
at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias);

/// Returns the gradients, given the arguments of bias_gelu(). On the CPU the result does not depend on the
/// number of threads.
BiasGeluGradients bias_gelu_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                     const at::Tensor& bias);

/// Returns silu(gate) * up, contiguous (Shazeer 2020). Both are [..., n] of one dtype. Halves of one tensor
/// [..., 2 n] are read in place; other strides go through contiguous().
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Writes the gradients of `gate` and `up`. The outputs are [..., n], contiguous or halves of one tensor
/// [..., 2 n].
void swiglu_backward(const at::Tensor& grad_output, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& grad_gate, const at::Tensor& grad_up);

}  // namespace deepspeed::kernels
