// The kernels that may be given parameters, as operators of torch's dispatcher: a parameter that ZeRO has
// partitioned is made whole around an operator (zero/storage/interception.h), in forward and in backward.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace deepspeed::ops::dispatched {

using OptionalTensor = std::optional<at::Tensor>;

/// Returns output, sum (undefined without a residual), mean (undefined of RMS norm) and rstd.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& input,
                                                                const OptionalTensor& residual,
                                                                const OptionalTensor& weight,
                                                                const OptionalTensor& bias, double eps,
                                                                bool is_rms);
/// Returns the gradients of the sum, the weight and the bias; the last two are undefined without such a
/// parameter.
std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_backward(
    const at::Tensor& grad_output, const OptionalTensor& grad_sum, const at::Tensor& sum,
    const OptionalTensor& mean, const at::Tensor& rstd, const OptionalTensor& weight,
    const OptionalTensor& bias, bool is_rms);

at::Tensor bias_gelu(const at::Tensor& input, const OptionalTensor& bias);
/// Returns the gradients of input and bias.
std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                      const OptionalTensor& bias);

/// `seed` and `offset` are the bits of a Philox.
at::Tensor bias_dropout_residual(const at::Tensor& input, const OptionalTensor& bias,
                                 const OptionalTensor& residual, double ratio, int64_t seed, int64_t offset);

at::Tensor masked_softmax(const at::Tensor& scores, const OptionalTensor& mask, double scale);

/// Returns losses, the wanted gradients of hidden, weight and bias, and their factors
/// (kernels::LinearCrossEntropyGradients). Without `row_gradients` any wanted ones have factors.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy(
    const at::Tensor& hidden, const at::Tensor& weight, const OptionalTensor& bias, const at::Tensor& targets,
    const OptionalTensor& row_gradients, bool wants_hidden, bool wants_weight, bool wants_bias,
    int64_t ignore_index, double label_smoothing, int64_t chunk_rows);

}  // namespace deepspeed::ops::dispatched
