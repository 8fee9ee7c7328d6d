// The activations between the two products of a feed-forward block, with their bias or their gate.
//
// Dtypes: fp32, bf16, fp16 or fp64, with fp32 (fp64) arithmetic. CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct BiasGeluGradients {
  at::Tensor input;  // as grad_output
  at::Tensor bias;   // undefined without a bias; dtype of bias
};

/// Returns the tanh form of GELU of x = input + bias: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
/// (Hendrycks, Gimpel 2016). `input` is [..., n], `bias` [n] or undefined, of input's dtype or, beside 16
/// bits, fp32. Inputs of any strides are read through their contiguous().
at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias);

/// Returns the gradients from what bias_gelu() was given. On the CPU the result does not depend on the number
/// of threads.
BiasGeluGradients bias_gelu_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                     const at::Tensor& bias);

/// Returns silu(gate) * up, contiguous (Shazeer 2020). Both are [..., n] of one dtype. Halves of one tensor
/// [..., 2 n] are read where they lie; other strides go through contiguous().
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Writes the gradients of `gate` and `up`. The outputs are [..., n], contiguous or halves of one tensor
/// [..., 2 n].
void swiglu_backward(const at::Tensor& grad_output, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& grad_gate, const at::Tensor& grad_up);

}  // namespace deepspeed::kernels
