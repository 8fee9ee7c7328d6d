#include "deepspeed/kernels/ops/normalization.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"
#include "deepspeed/kernels/ops/part_sums.h"

namespace deepspeed::kernels {
namespace {

NormalizedRows normalize(const at::Tensor& given, const at::Tensor& given_residual,
                         const at::Tensor& given_weight, const at::Tensor& given_bias, double eps,
                         bool is_rms) {
  const at::Tensor input = op_input("input", given);
  const int64_t columns = columns_of("input", input);
  const at::Tensor residual = optional_like("residual", given_residual, "input", input);
  const at::Tensor weight = op_parameter("weight", given_weight, input);
  const at::Tensor bias = op_parameter("bias", given_bias, input);
  if (weight.defined() && bias.defined() && weight.scalar_type() != bias.scalar_type()) {
    raise<UsageError>("bias has dtype ", bias.scalar_type(), ", expected that of weight, ",
                      weight.scalar_type());
  }
  if (!(eps >= 0)) raise<UsageError>("eps is ", eps, ", expected 0 or more");
  const at::TensorOptions statistics = input.options().dtype(wide_dtype(input));
  const at::IntArrayRef rows = input.sizes().slice(0, static_cast<size_t>(input.dim() - 1));
  NormalizedRows result;
  result.output = at::empty_like(input);
  result.sum = residual.defined() ? at::empty_like(input) : input;
  result.rstd = at::empty(rows, statistics);
  if (!is_rms) result.mean = at::empty(rows, statistics);
  if (input.numel() == 0) return result;
  NormArrays arrays;
  arrays.input = input.const_data_ptr();
  arrays.residual = const_data(residual);
  arrays.weight = const_data(weight);
  arrays.bias = const_data(bias);
  arrays.output = result.output.data_ptr();
  arrays.sum = residual.defined() ? result.sum.data_ptr() : nullptr;
  arrays.mean = mutable_data(result.mean);
  arrays.rstd = result.rstd.data_ptr();
  arrays.rows = input.numel() / columns;
  arrays.columns = columns;
  arrays.eps = eps;
  arrays.type = element_type(input.scalar_type());
  arrays.parameter_type = parameter_type(weight.defined() ? weight : bias, input);
  run_op(input.device(), arrays);
  return result;
}

/// Returns the contiguous mean or rstd. Throws UsageError unless it has one fp32 (fp64) number per row.
at::Tensor statistic(const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  if (!tensor.defined()) raise<UsageError>(name, " is undefined, expected what the forward returned");
  const at::IntArrayRef rows = input.sizes().slice(0, static_cast<size_t>(input.dim() - 1));
  if (tensor.sizes() != rows || tensor.scalar_type() != wide_dtype(input) ||
      tensor.device() != input.device()) {
    raise<UsageError>(name, " has shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(), " on ",
                      tensor.device(), ", expected ", rows, " and ", wide_dtype(input), " on ",
                      input.device());
  }
  return tensor.contiguous();
}

/// Holds the tensors that the three backward functions use. Either sum or output is defined.
struct SavedNorm {
  at::Tensor sum, output, mean, rstd, weight, bias;
  bool is_rms = false;
};

NormGradients normalize_backward(const at::Tensor& given, const SavedNorm& saved,
                                 const at::Tensor& given_grad_sum) {
  const bool has_output = saved.output.defined();
  const char* const name = has_output ? "output" : "sum";
  const at::Tensor values = op_input(name, has_output ? saved.output : saved.sum);
  const int64_t columns = columns_of(name, values);
  const at::Tensor grad_output = op_input_like("grad_output", given, name, values);
  const at::Tensor grad_sum = optional_like("grad_sum", given_grad_sum, name, values);
  const at::Tensor weight = op_parameter("weight", saved.weight, values);
  const at::Tensor bias = op_parameter("bias", saved.bias, values);
  const at::Tensor rstd = statistic("rstd", saved.rstd, values);
  const at::Tensor mean = saved.is_rms || has_output ? at::Tensor() : statistic("mean", saved.mean, values);
  NormGradients gradients;
  gradients.input = at::empty_like(grad_output);
  if (values.numel() == 0) {
    if (weight.defined()) gradients.weight = at::zeros_like(weight);
    if (bias.defined()) gradients.bias = at::zeros_like(bias);
    return gradients;
  }
  NormBackwardArrays arrays;
  arrays.rows = row_parts(values.numel() / columns, columns, values.device());
  const at::Tensor weight_parts = empty_parts(arrays.rows, values, weight);
  const at::Tensor bias_parts = empty_parts(arrays.rows, values, bias);
  arrays.grad_output = grad_output.const_data_ptr();
  arrays.grad_sum = const_data(grad_sum);
  (has_output ? arrays.output : arrays.sum) = values.const_data_ptr();
  arrays.mean = const_data(mean);
  arrays.rstd = rstd.const_data_ptr();
  arrays.weight = const_data(weight);
  arrays.bias = const_data(bias);
  arrays.grad_input = gradients.input.data_ptr();
  arrays.weight_parts = mutable_data(weight_parts);
  arrays.bias_parts = mutable_data(bias_parts);
  arrays.is_rms = saved.is_rms;
  arrays.type = element_type(values.scalar_type());
  arrays.parameter_type = parameter_type(weight.defined() ? weight : bias, values);
  run_op(values.device(), arrays);
  const auto [of_weight, of_bias] = sums_of_parts({weight_parts, weight}, {bias_parts, bias});
  gradients.weight = of_weight;
  gradients.bias = of_bias;
  return gradients;
}

}  // namespace

NormalizedRows layer_norm(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& weight,
                          const at::Tensor& bias, double eps) {
  return normalize(input, residual, weight, bias, eps, false);
}

NormGradients layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& sum,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight,
                                  const at::Tensor& bias, const at::Tensor& grad_sum) {
  return normalize_backward(grad_output, {sum, {}, mean, rstd, weight, bias, false}, grad_sum);
}

NormGradients layer_norm_backward_from_output(const at::Tensor& grad_output, const at::Tensor& output,
                                              const at::Tensor& rstd, const at::Tensor& weight,
                                              const at::Tensor& bias, const at::Tensor& grad_sum) {
  return normalize_backward(grad_output, {{}, output, {}, rstd, weight, bias, false}, grad_sum);
}

NormalizedRows rms_norm(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& weight,
                        double eps) {
  return normalize(input, residual, weight, {}, eps, true);
}

NormGradients rms_norm_backward(const at::Tensor& grad_output, const at::Tensor& sum, const at::Tensor& rstd,
                                const at::Tensor& weight, const at::Tensor& grad_sum) {
  return normalize_backward(grad_output, {sum, {}, {}, rstd, weight, {}, true}, grad_sum);
}

}  // namespace deepspeed::kernels
