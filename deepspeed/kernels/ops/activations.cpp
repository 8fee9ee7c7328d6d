#include "deepspeed/kernels/ops/activations.h"

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

BiasGeluArrays gelu_arrays(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& output) {
  BiasGeluArrays arrays;
  arrays.input = input.const_data_ptr();
  arrays.bias = const_data(bias);
  arrays.output = output.data_ptr();
  arrays.rows = row_parts(input.numel() / input.size(-1), input.size(-1), input.device());
  arrays.type = element_type(input.scalar_type());
  arrays.parameter_type = parameter_type(bias, input);
  return arrays;
}

/// Holds a tensor whose rows are a fixed distance apart.
struct Rows {
  at::Tensor tensor;
  int64_t stride = 0;
};

/// Returns whether a tensor's rows are a fixed distance apart and have adjacent elements.
bool has_even_rows(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  if (tensor.stride(-1) != 1) return false;
  for (int64_t dim = tensor.dim() - 3; dim >= 0; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != tensor.stride(dim + 1) * tensor.size(dim + 1))
      return false;
  }
  return true;
}

int64_t row_stride(const at::Tensor& tensor) { return tensor.dim() < 2 ? tensor.size(0) : tensor.stride(-2); }

Rows rows_of(const at::Tensor& tensor) {
  const bool lies_well = has_even_rows(tensor);
  const at::Tensor even = lies_well ? tensor : tensor.contiguous();
  return {even, lies_well ? row_stride(even) : even.size(-1)};
}

/// Returns the distance between an output's rows, in elements. Throws UsageError if it is not fixed, or the
/// output does not match `input`.
int64_t output_stride(const char* name, const at::Tensor& output, const at::Tensor& input) {
  check_op_input_like(name, output, "gate", input);
  if (!has_even_rows(output)) {
    raise<UsageError>(name, " of shape ", output.sizes(), " has strides ", output.strides(),
                      ", expected rows at one distance, as a half of a contiguous tensor has");
  }
  return row_stride(output);
}

struct SwigluInputs {
  Rows gate, up;
  int64_t columns = 0;
};

SwigluInputs swiglu_inputs(const at::Tensor& gate, const at::Tensor& up) {
  check_op_input("gate", gate);
  check_op_input_like("up", up, "gate", gate);
  const int64_t columns = columns_of("gate", gate);
  return {rows_of(gate), rows_of(up), columns};
}

SwigluArrays swiglu_arrays(const SwigluInputs& inputs) {
  SwigluArrays arrays;
  arrays.gate = inputs.gate.tensor.const_data_ptr();
  arrays.up = inputs.up.tensor.const_data_ptr();
  arrays.gate_stride = inputs.gate.stride;
  arrays.up_stride = inputs.up.stride;
  arrays.rows = inputs.gate.tensor.numel() / inputs.columns;
  arrays.columns = inputs.columns;
  arrays.type = element_type(inputs.gate.tensor.scalar_type());
  return arrays;
}

}  // namespace

at::Tensor bias_gelu(const at::Tensor& given, const at::Tensor& given_bias) {
  const at::Tensor input = op_input("input", given);
  columns_of("input", input);
  const at::Tensor bias = op_parameter("bias", given_bias, input);
  const at::Tensor output = at::empty_like(input);
  if (input.numel() == 0) return output;
  run_op(input.device(), gelu_arrays(input, bias, output));
  return output;
}

BiasGeluGradients bias_gelu_backward(const at::Tensor& given, const at::Tensor& given_input,
                                     const at::Tensor& given_bias) {
  const at::Tensor input = op_input("input", given_input);
  columns_of("input", input);
  const at::Tensor grad_output = op_input_like("grad_output", given, "input", input);
  const at::Tensor bias = op_parameter("bias", given_bias, input);
  BiasGeluGradients gradients{at::empty_like(input), {}};
  if (input.numel() == 0) {
    if (bias.defined()) gradients.bias = at::zeros_like(bias);
    return gradients;
  }
  BiasGeluArrays arrays = gelu_arrays(input, bias, gradients.input);
  const at::Tensor parts = empty_parts(arrays.rows, input, bias);
  arrays.backward = true;
  arrays.grad_output = grad_output.const_data_ptr();
  arrays.bias_parts = mutable_data(parts);
  run_op(input.device(), arrays);
  gradients.bias = sums_of_parts({parts, bias})[0];
  return gradients;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const SwigluInputs inputs = swiglu_inputs(gate, up);
  const at::Tensor output = at::empty(gate.sizes(), gate.options());
  if (output.numel() == 0) return output;
  SwigluArrays arrays = swiglu_arrays(inputs);
  arrays.output = output.data_ptr();
  run_op(gate.device(), arrays);
  return output;
}

void swiglu_backward(const at::Tensor& given, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& grad_gate, const at::Tensor& grad_up) {
  const SwigluInputs inputs = swiglu_inputs(gate, up);
  const at::Tensor grad_output = op_input_like("grad_output", given, "gate", gate);
  const int64_t gate_stride = output_stride("grad_gate", grad_gate, gate);
  const int64_t up_stride = output_stride("grad_up", grad_up, gate);
  if (gate.numel() == 0) return;
  SwigluArrays arrays = swiglu_arrays(inputs);
  arrays.backward = true;
  arrays.grad_output = grad_output.const_data_ptr();
  arrays.grad_gate = grad_gate.data_ptr();
  arrays.grad_up = grad_up.data_ptr();
  arrays.grad_gate_stride = gate_stride;
  arrays.grad_up_stride = up_stride;
  run_op(gate.device(), arrays);
}

}  // namespace deepspeed::kernels
