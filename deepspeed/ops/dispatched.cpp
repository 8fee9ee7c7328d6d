#include "deepspeed/ops/dispatched.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "deepspeed/kernels/ops/activations.h"
#include "deepspeed/kernels/ops/cross_entropy.h"
#include "deepspeed/kernels/ops/dropout.h"
#include "deepspeed/kernels/ops/masked_softmax.h"
#include "deepspeed/kernels/ops/normalization.h"

namespace deepspeed::ops::dispatched {
namespace {

at::Tensor or_undefined(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm_kernel(const at::Tensor& input,
                                                                       const OptionalTensor& residual,
                                                                       const OptionalTensor& weight,
                                                                       const OptionalTensor& bias, double eps,
                                                                       bool is_rms) {
  const at::Tensor added = or_undefined(residual);
  const kernels::NormalizedRows rows =
      is_rms ? kernels::rms_norm(input, added, or_undefined(weight), eps)
             : kernels::layer_norm(input, added, or_undefined(weight), or_undefined(bias), eps);
  return {rows.output, added.defined() ? rows.sum : at::Tensor(), rows.mean, rows.rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_backward_kernel(
    const at::Tensor& grad_output, const OptionalTensor& grad_sum, const at::Tensor& sum,
    const OptionalTensor& mean, const at::Tensor& rstd, const OptionalTensor& weight,
    const OptionalTensor& bias, bool is_rms) {
  const kernels::NormGradients gradients =
      is_rms
          ? kernels::rms_norm_backward(grad_output, sum, rstd, or_undefined(weight), or_undefined(grad_sum))
          : kernels::layer_norm_backward(grad_output, sum, or_undefined(mean), rstd, or_undefined(weight),
                                         or_undefined(bias), or_undefined(grad_sum));
  return {gradients.input, gradients.weight, gradients.bias};
}

at::Tensor bias_gelu_kernel(const at::Tensor& input, const OptionalTensor& bias) {
  return kernels::bias_gelu(input, or_undefined(bias));
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward_kernel(const at::Tensor& grad_output,
                                                             const at::Tensor& input,
                                                             const OptionalTensor& bias) {
  const auto gradients = kernels::bias_gelu_backward(grad_output, input, or_undefined(bias));
  return {gradients.input, gradients.bias};
}

at::Tensor bias_dropout_residual_kernel(const at::Tensor& input, const OptionalTensor& bias,
                                        const OptionalTensor& residual, double ratio, int64_t seed,
                                        int64_t offset) {
  return kernels::bias_dropout_residual(input, or_undefined(bias), or_undefined(residual), ratio,
                                        {static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)});
}

at::Tensor masked_softmax_kernel(const at::Tensor& scores, const OptionalTensor& mask, double scale) {
  return kernels::masked_softmax(scores, or_undefined(mask), scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy_kernel(
    const at::Tensor& hidden, const at::Tensor& weight, const OptionalTensor& bias, const at::Tensor& targets,
    const OptionalTensor& row_gradients, bool wants_hidden, bool wants_weight, bool wants_bias,
    int64_t ignore_index, double label_smoothing, int64_t chunk_rows) {
  const auto result = kernels::linear_cross_entropy(
      hidden, weight, or_undefined(bias), targets, or_undefined(row_gradients),
      {wants_hidden, wants_weight, wants_bias}, {ignore_index, label_smoothing}, chunk_rows);
  return {result.losses, result.gradients.hidden, result.gradients.weight, result.gradients.bias,
          result.gradients.factors};
}

/// Calls the operator of a name by its kernel's signature.
template <class Kernel, class... Arguments>
auto call(const char* name, Kernel* /*signature*/, const Arguments&... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Kernel>().call(arguments...);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& input,
                                                                const OptionalTensor& residual,
                                                                const OptionalTensor& weight,
                                                                const OptionalTensor& bias, double eps,
                                                                bool is_rms) {
  return call("deepspeed_kernels::norm", &norm_kernel, input, residual, weight, bias, eps, is_rms);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_backward(
    const at::Tensor& grad_output, const OptionalTensor& grad_sum, const at::Tensor& sum,
    const OptionalTensor& mean, const at::Tensor& rstd, const OptionalTensor& weight,
    const OptionalTensor& bias, bool is_rms) {
  return call("deepspeed_kernels::norm_backward", &norm_backward_kernel, grad_output, grad_sum, sum, mean,
              rstd, weight, bias, is_rms);
}

at::Tensor bias_gelu(const at::Tensor& input, const OptionalTensor& bias) {
  return call("deepspeed_kernels::bias_gelu", &bias_gelu_kernel, input, bias);
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                      const OptionalTensor& bias) {
  return call("deepspeed_kernels::bias_gelu_backward", &bias_gelu_backward_kernel, grad_output, input, bias);
}

at::Tensor bias_dropout_residual(const at::Tensor& input, const OptionalTensor& bias,
                                 const OptionalTensor& residual, double ratio, int64_t seed, int64_t offset) {
  return call("deepspeed_kernels::bias_dropout_residual", &bias_dropout_residual_kernel, input, bias,
              residual, ratio, seed, offset);
}

at::Tensor masked_softmax(const at::Tensor& scores, const OptionalTensor& mask, double scale) {
  return call("deepspeed_kernels::masked_softmax", &masked_softmax_kernel, scores, mask, scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> linear_cross_entropy(
    const at::Tensor& hidden, const at::Tensor& weight, const OptionalTensor& bias, const at::Tensor& targets,
    const OptionalTensor& row_gradients, bool wants_hidden, bool wants_weight, bool wants_bias,
    int64_t ignore_index, double label_smoothing, int64_t chunk_rows) {
  return call("deepspeed_kernels::linear_cross_entropy", &linear_cross_entropy_kernel, hidden, weight, bias,
              targets, row_gradients, wants_hidden, wants_weight, wants_bias, ignore_index, label_smoothing,
              chunk_rows);
}

}  // namespace deepspeed::ops::dispatched

// Their schemas are those of the functions. Autograd goes around them (ops/functional.h).
TORCH_LIBRARY(deepspeed_kernels, library) {
  namespace dispatched = deepspeed::ops::dispatched;
  const auto add = [&](const char* name, auto* kernel) {
    library.def(name,
                torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, torch::CppFunction(kernel)));
  };
  add("norm", &dispatched::norm_kernel);
  add("norm_backward", &dispatched::norm_backward_kernel);
  add("bias_gelu", &dispatched::bias_gelu_kernel);
  add("bias_gelu_backward", &dispatched::bias_gelu_backward_kernel);
  add("bias_dropout_residual", &dispatched::bias_dropout_residual_kernel);
  add("masked_softmax", &dispatched::masked_softmax_kernel);
  add("linear_cross_entropy", &dispatched::linear_cross_entropy_kernel);
}
