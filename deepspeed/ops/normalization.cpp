#include "deepspeed/kernels/ops/normalization.h"

#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/ops/autograd/autocast.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/autograd/whole_tensors.h"
#include "deepspeed/ops/functional.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::ops {
namespace {

struct NormCall {
  bool is_rms, has_residual;
};

/// Computes a layer norm or RMS norm. Returns the output, and with a residual also the sum.
struct Norm : torch::autograd::Function<Norm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const OptionalTensor& given_residual, const OptionalTensor& given_weight,
                               const OptionalTensor& given_bias, double eps, bool is_rms) {
    const at::Tensor residual = or_undefined(given_residual), weight = or_undefined(given_weight),
                     bias = or_undefined(given_bias);
    const kernels::NormalizedRows rows = with_whole("norm", {input, residual, weight, bias}, [&] {
      return is_rms ? kernels::rms_norm(input, residual, weight, eps)
                    : kernels::layer_norm(input, residual, weight, bias, eps);
    });
    const bool has_residual = residual.defined();
    context->save_for_backward({has_residual ? rows.sum : input, rows.mean, rows.rstd, weight, bias});
    context->set_materialize_grads(false);
    save_value(context, NormCall{is_rms, has_residual});
    return has_residual ? variable_list{rows.output, rows.sum} : variable_list{rows.output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto call = saved_value<NormCall>(context);
    refuse_create_graph(call.is_rms ? "rms_norm" : "layer_norm");
    const at::Tensor grad_output = gradients[0];
    const at::Tensor grad_sum = call.has_residual ? gradients[1] : at::Tensor();
    if (!grad_output.defined()) return {grad_sum, grad_sum, {}, {}, {}, {}};  // only the sum was used
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &mean = saved[1], &rstd = saved[2], &weight = saved[3],
                     &bias = saved[4];
    const kernels::NormGradients made =
        with_whole("norm_backward", {grad_output, grad_sum, sum, weight, bias}, [&] {
          return call.is_rms
                     ? kernels::rms_norm_backward(grad_output, sum, rstd, weight, grad_sum)
                     : kernels::layer_norm_backward(grad_output, sum, mean, rstd, weight, bias, grad_sum);
        });
    return {made.input, call.has_residual ? made.input : at::Tensor(), made.weight, made.bias, {}, {}};
  }
};

/// Normalizes input + residual. Under autocast the input may have 16 bits and the residual fp32; their sum is
/// then fp32, as in torch.
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
