#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/kernels/ops/activations.h"
#include "deepspeed/kernels/ops/dropout.h"
#include "deepspeed/ops/autograd/autocast.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/autograd/whole_tensors.h"
#include "deepspeed/ops/functional.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::ops {
namespace {

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const OptionalTensor& given_bias) {
    const at::Tensor bias = or_undefined(given_bias);
    context->save_for_backward({input, bias});
    return with_whole("bias_gelu", {input, bias}, [&] { return kernels::bias_gelu(input, bias); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("bias_gelu");
    const variable_list saved = context->get_saved_variables();
    const auto made = with_whole("bias_gelu_backward", {gradients[0], saved[0], saved[1]}, [&] {
      return kernels::bias_gelu_backward(gradients[0], saved[0], saved[1]);
    });
    return {made.input, made.bias};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return with_whole("swiglu", {gate, up}, [&] { return kernels::swiglu(gate, up); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("swiglu");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor grad_gate = at::empty(saved[0].sizes(), saved[0].options());
    const at::Tensor grad_up = at::empty_like(grad_gate);
    with_whole("swiglu_backward", {gradients[0], saved[0], saved[1]},
               [&] { kernels::swiglu_backward(gradients[0], saved[0], saved[1], grad_gate, grad_up); });
    return {grad_gate, grad_up};
  }
};

/// Returns the first (half = 0) or second (1) half of the last dimension.
at::Tensor half_of(const at::Tensor& tensor, int64_t half) {
  const int64_t size = tensor.size(-1) / 2;
  return tensor.narrow(-1, half * size, size);
}

struct SwigluOfHalves : torch::autograd::Function<SwigluOfHalves> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_and_up) {
    context->save_for_backward({gate_and_up});
    return with_whole("swiglu", {gate_and_up},
                      [&] { return kernels::swiglu(half_of(gate_and_up, 0), half_of(gate_and_up, 1)); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("swiglu");
    const at::Tensor gate_and_up = context->get_saved_variables()[0];
    const at::Tensor grad = at::empty(gate_and_up.sizes(), gate_and_up.options());
    with_whole("swiglu_backward", {gradients[0], gate_and_up}, [&] {
      kernels::swiglu_backward(gradients[0], half_of(gate_and_up, 0), half_of(gate_and_up, 1),
                               half_of(grad, 0), half_of(grad, 1));
    });
    return {grad};
  }
};

struct DropoutCall {
  double ratio;
  kernels::Philox philox;
  bool has_residual;
};

/// Computes dropout(input + bias) + residual. Keeps the seed (Philox) for backward, and the bias for its
/// shape and dtype.
struct BiasDropoutResidual : torch::autograd::Function<BiasDropoutResidual> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const OptionalTensor& given_bias, const OptionalTensor& given_residual,
                            double ratio, const kernels::Philox& philox) {
    const at::Tensor bias = or_undefined(given_bias), residual = or_undefined(given_residual);
    context->save_for_backward({bias});
    save_value(context, DropoutCall{ratio, philox, residual.defined()});
    return with_whole("bias_dropout_residual", {input, bias, residual},
                      [&] { return kernels::bias_dropout_residual(input, bias, residual, ratio, philox); });
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("dropout");
    const auto call = saved_value<DropoutCall>(context);
    const auto made = kernels::bias_dropout_residual_backward(gradients[0], context->get_saved_variables()[0],
                                                              call.ratio, call.philox);
    return {made.input, made.bias, call.has_residual ? gradients[0] : at::Tensor(), {}, {}};
  }
};

at::Tensor drop(const at::Tensor& input, const OptionalTensor& bias, const OptionalTensor& residual,
                double ratio) {
  const kernels::Philox philox = ratio == 0 ? kernels::Philox{} : kernels::next_philox(input.device());
  return BiasDropoutResidual::apply(input, bias, residual, ratio, philox);
}

}  // namespace

at::Tensor bias_gelu(const at::Tensor& input, const OptionalTensor& bias) {
  require_defined("bias_gelu", {{"input", input}});
  return BiasGelu::apply(input, bias);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  require_defined("swiglu", {{"gate", gate}, {"up", up}});
  return Swiglu::apply(gate, up);
}

at::Tensor swiglu(const at::Tensor& gate_and_up) {
  require_defined("swiglu", {{"gate_and_up", gate_and_up}});
  if (gate_and_up.dim() == 0 || gate_and_up.size(-1) % 2 != 0) {
    raise<UsageError>("gate_and_up has shape ", gate_and_up.sizes(),
                      ", expected [..., 2 n], a gate and as much beside it");
  }
  return SwigluOfHalves::apply(gate_and_up);
}

at::Tensor dropout(const at::Tensor& input, double ratio, bool training) {
  require_defined("dropout", {{"input", input}});
  if (!(ratio >= 0 && ratio <= 1)) raise<UsageError>("ratio is ", ratio, ", expected a number in [0, 1]");
  return training && ratio != 0 ? drop(input, {}, {}, ratio) : input;
}

at::Tensor bias_dropout_residual(const at::Tensor& input, const OptionalTensor& bias,
                                 const at::Tensor& residual, double ratio, bool training) {
  require_defined("bias_dropout_residual", {{"input", input}, {"residual", residual}});
  if (!(ratio >= 0 && ratio <= 1)) raise<UsageError>("ratio is ", ratio, ", expected a number in [0, 1]");
  // Under autocast a product's result has 16 bits, and the residual may be fp32. The sum is then fp32, as in
  // torch.
  const bool widens = is_autocast(input) && input.scalar_type() != residual.scalar_type();
  const at::ScalarType dtype = c10::promoteTypes(input.scalar_type(), residual.scalar_type());
  return drop(widens ? input.to(dtype) : input, bias, widens ? residual.to(dtype) : residual,
              training ? ratio : 0.0);
}

}  // namespace deepspeed::ops
