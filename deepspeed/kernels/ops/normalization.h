// Layer norm and RMS norm over the last dimension, after adding a residual.
//
// Shapes: input and residual [..., hidden]; weight and bias [hidden], each may be undefined (1 and 0).
// Dtypes: fp32, bf16, fp16 or fp64. The residual has input's dtype; weight and bias have it too, or fp32 next
// to a 16-bit input. Arithmetic and statistics are fp32, or fp64 for fp64 inputs. Inputs of any strides are
// read through their contiguous(). Devices: CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct NormalizedRows {
  at::Tensor output;  // like input
  at::Tensor sum;     // input + residual, rounded to input's dtype; without a residual `input` itself
  at::Tensor mean;    // fp32 (fp64), input's shape without the last dimension; undefined for RMS norm
  at::Tensor rstd;    // 1 / sqrt(variance + eps), for RMS norm 1 / sqrt(mean square + eps); shape of mean
};

struct NormGradients {
  at::Tensor input;   // of the sum, so of both input and residual; dtype of grad_output
  at::Tensor weight;  // in the dtype of weight; undefined without a weight
  at::Tensor bias;    // in the dtype of bias; undefined without a bias
};

/// Returns (sum - mean) * rstd * weight + bias (Ba, Kiros, Hinton 2016). Throws UsageError for a wrong shape
/// or dtype.
NormalizedRows layer_norm(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& weight,
                          const at::Tensor& bias, double eps);

/// Returns the gradients, given the arguments and results of layer_norm(). `grad_sum`, which may be
/// undefined, is the gradient that reached `sum` directly; it is added to the input's gradient. The values of
/// `bias` are not read. On the CPU the result does not depend on the number of threads.
NormGradients layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& sum,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight,
                                  const at::Tensor& bias, const at::Tensor& grad_sum = {});

/// Returns the gradients of layer_norm() from its `output`, if `sum` was not kept. The normalized rows are
/// computed again, as (output - bias) / weight, so no element of `weight` may be 0.
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
