#include "deepspeed/kernels/ops/dropout.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/graphs/device_graph.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"
#include "deepspeed/kernels/ops/part_sums.h"

namespace deepspeed::kernels {
namespace {

// Makes these random numbers differ from those that torch's kernels draw with the same seed and offset.
constexpr uint64_t kSeedOfDropout = 0x5bf03635d1f5a87bULL;

DropoutArrays dropout_arrays(const at::Tensor& input, const at::Tensor& output, double ratio,
                             const Philox& philox) {
  if (!(ratio >= 0 && ratio <= 1)) raise<UsageError>("ratio is ", ratio, ", expected a number in [0, 1]");
  DropoutArrays arrays;
  arrays.input = input.const_data_ptr();
  arrays.output = output.data_ptr();
  const int64_t columns = input.dim() == 0 ? 1 : input.size(-1);
  arrays.rows = row_parts(columns == 0 ? 0 : input.numel() / columns, columns, input.device());
  arrays.philox = philox;
  arrays.threshold = dropout_threshold(ratio);
  arrays.scale = ratio == 1 ? 0.0 : 1 / (1 - ratio);
  arrays.type = element_type(input.scalar_type());
  arrays.parameter_type = arrays.type;
  return arrays;
}

void run_dropout(const at::Tensor& input, const DropoutArrays& arrays) {
  if (input.numel() != 0) run_op(input.device(), arrays);
}

}  // namespace

Philox next_philox(const at::Device& device) {
  if (device.is_cuda()) {
    if (device::DeviceGraph::is_capturing()) {
      raise<NotSupportedError>(
          "dropout of deepspeed::ops takes its seed and offset from the host, which a CUDA ",
          "graph would repeat: set its ratio to 0, take torch's dropout, or set ",
          "cuda_graphs.enabled to false");
    }
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    const Philox philox{generator.current_seed() ^ kSeedOfDropout, generator.get_offset()};
    generator.unsafeGetGeneratorImpl()->set_offset(philox.offset + 4);
    return philox;
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  auto* const numbers = at::check_generator<at::CPUGeneratorImpl>(generator);
  const uint64_t seed = numbers->random64();
  return {seed, numbers->random64()};
}

at::Tensor dropout(const at::Tensor& given, double ratio, const Philox& philox) {
  const at::Tensor input = op_input("input", given);
  const at::Tensor output = at::empty_like(input);
  run_dropout(input, dropout_arrays(input, output, ratio, philox));
  return output;
}

void dropout_(const at::Tensor& values, double ratio, const Philox& philox) {
  check_op_input("values", values);
  if (!values.is_contiguous()) {
    raise<UsageError>("values of shape ", values.sizes(), " are not contiguous; pass their contiguous()");
  }
  run_dropout(values, dropout_arrays(values, values, ratio, philox));
}

at::Tensor bias_dropout_residual(const at::Tensor& given, const at::Tensor& given_bias,
                                 const at::Tensor& given_residual, double ratio, const Philox& philox) {
  const at::Tensor input = op_input("input", given);
  columns_of("input", input);
  const at::Tensor bias = op_parameter("bias", given_bias, input);
  const at::Tensor residual = optional_like("residual", given_residual, "input", input);
  const at::Tensor output = at::empty_like(input);
  DropoutArrays arrays = dropout_arrays(input, output, ratio, philox);
  arrays.bias = const_data(bias);
  arrays.residual = const_data(residual);
  arrays.parameter_type = parameter_type(bias, input);
  run_dropout(input, arrays);
  return output;
}

BiasDropoutGradients bias_dropout_residual_backward(const at::Tensor& given, const at::Tensor& given_bias,
                                                    double ratio, const Philox& philox) {
  const at::Tensor grad_output = op_input("grad_output", given);
  columns_of("grad_output", grad_output);
  const at::Tensor bias = op_parameter("bias", given_bias, grad_output);
  BiasDropoutGradients gradients{at::empty_like(grad_output), {}};
  DropoutArrays arrays = dropout_arrays(grad_output, gradients.input, ratio, philox);
  if (grad_output.numel() == 0) {
    if (bias.defined()) gradients.bias = at::zeros_like(bias);
    return gradients;
  }
  const at::Tensor parts = empty_parts(arrays.rows, grad_output, bias);
  arrays.bias_parts = mutable_data(parts);
  run_dropout(grad_output, arrays);
  gradients.bias = sums_of_parts({parts, bias})[0];
  return gradients;
}

}  // namespace deepspeed::kernels
