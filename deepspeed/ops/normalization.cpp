#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/ops/autograd_function.h"
#include "deepspeed/ops/dispatched.h"
#include "deepspeed/ops/functional.h"

namespace deepspeed::ops {
namespace {

/// Layer norm or RMS norm. Returns the output, and with a residual the sum; keeps the sum and the statistics.
struct Norm : torch::autograd::Function<Norm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const OptionalTensor& residual, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps, bool is_rms) {
    const auto [output, sum, mean, rstd] = dispatched::norm(input, residual, weight, bias, eps, is_rms);
    context->save_for_backward(
        {sum.defined() ? sum : input, mean, rstd, or_undefined(weight), or_undefined(bias)});
    context->saved_data["is_rms"] = is_rms;
    context->saved_data["has_residual"] = sum.defined();
    context->set_materialize_grads(false);
    return sum.defined() ? variable_list{output, sum} : variable_list{output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("a norm");
    const bool has_residual = context->saved_data["has_residual"].toBool();
    const at::Tensor grad_sum = has_residual ? gradients[1] : at::Tensor();
    if (!gradients[0].defined()) return {grad_sum, grad_sum, {}, {}, {}, {}};  // the output was not used
    const variable_list saved = context->get_saved_variables();
    const auto [input, weight, bias] = dispatched::norm_backward(
        gradients[0], or_none(grad_sum), saved[0], or_none(saved[1]), saved[2], or_none(saved[3]),
        or_none(saved[4]), context->saved_data["is_rms"].toBool());
    return {input, has_residual ? input : at::Tensor(), weight, bias, {}, {}};
  }
};

/// The sum of a product's result, in 16 bits under autocast, and of a residual that may be fp32 is fp32, as
/// torch's is.
std::pair<at::Tensor, at::Tensor> with_residual(const at::Tensor& input, const at::Tensor& residual,
                                                const OptionalTensor& weight, const OptionalTensor& bias,
                                                double eps, bool is_rms) {
  const bool widens = is_autocast(input) && input.scalar_type() != residual.scalar_type();
  const at::ScalarType dtype = c10::promoteTypes(input.scalar_type(), residual.scalar_type());
  const variable_list both = Norm::apply(widens ? input.to(dtype) : input,
                                         widens ? residual.to(dtype) : residual, weight, bias, eps, is_rms);
  return {both[0], both[1]};
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      double eps) {
  require_defined("layer_norm", {{"input", input}});
  return Norm::apply(input, OptionalTensor(), weight, bias, eps, false)[0];
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& input, const at::Tensor& residual,
                                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                                 double eps) {
  require_defined("add_layer_norm", {{"input", input}, {"residual", residual}});
  return with_residual(input, residual, weight, bias, eps, false);
}

at::Tensor rms_norm(const at::Tensor& input, const OptionalTensor& weight, double eps) {
  require_defined("rms_norm", {{"input", input}});
  return Norm::apply(input, OptionalTensor(), weight, OptionalTensor(), eps, true)[0];
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input, const at::Tensor& residual,
                                               const OptionalTensor& weight, double eps) {
  require_defined("add_rms_norm", {{"input", input}, {"residual", residual}});
  return with_residual(input, residual, weight, {}, eps, true);
}

}  // namespace deepspeed::ops
