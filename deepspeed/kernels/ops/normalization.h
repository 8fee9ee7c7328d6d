// Layer norm and RMS norm over the last dimension, with a residual that is added first.
//
// Shapes: input [..., hidden]; residual as input; weight and bias [hidden], each may be undefined (1 and 0).
// Dtypes: fp32, bf16, fp16 or fp64; residual as input; weight and bias as input, or fp32 beside 16 bits.
// Arithmetic and statistics are fp32, of fp64 inputs fp64. Inputs of any strides are read through their
// contiguous(). CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct NormalizedRows {
  at::Tensor output;  // as input
  at::Tensor sum;     // input + residual, rounded to input's dtype; `input` itself without a residual
  at::Tensor
      mean;  // of each row: fp32 (fp64), input's shape without the last dimension; of RMS norm undefined
  at::Tensor rstd;  // 1 / sqrt(variance + eps), of RMS norm 1 / sqrt(mean square + eps); shape of mean
};

struct NormGradients {
  at::Tensor input;   // of the sum, so of input and of residual alike; dtype of grad_output
  at::Tensor weight;  // undefined without a weight; dtype of weight
  at::Tensor bias;    // undefined without a bias; dtype of bias
};

/// Returns (sum - mean) * rstd * weight + bias (Ba, Kiros, Hinton 2016). Throws UsageError for a wrong shape
/// or dtype.
NormalizedRows layer_norm(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& weight,
                          const at::Tensor& bias, double eps);

/// Returns the gradients from what layer_norm() was given and returned. `grad_sum`, which may be undefined,
/// is what came to `sum` by another way and is added to the input's gradient. The values of `bias` are not
/// read. On the CPU the result does not depend on the number of threads.
NormGradients layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& sum,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight,
                                  const at::Tensor& bias, const at::Tensor& grad_sum = {});

/// Does so without `sum`: takes the normalized rows from the output, as (output - bias) / weight. No element
/// of `weight` may be 0.
NormGradients layer_norm_backward_from_output(const at::Tensor& grad_output, const at::Tensor& output,
                                              const at::Tensor& rstd, const at::Tensor& weight,
                                              const at::Tensor& bias, const at::Tensor& grad_sum = {});

/// Returns sum * rstd * weight (Zhang, Sennrich 2019).
NormalizedRows rms_norm(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& weight,
                        double eps);

/// Returns the gradients of rms_norm(), as layer_norm_backward() does.
NormGradients rms_norm_backward(const at::Tensor& grad_output, const at::Tensor& sum, const at::Tensor& rstd,
                                const at::Tensor& weight, const at::Tensor& grad_sum = {});

}  // namespace deepspeed::kernels
