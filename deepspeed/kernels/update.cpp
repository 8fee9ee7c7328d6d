#include "deepspeed/kernels/update.h"

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {
namespace {

void check_dtypes(const UpdateTensors& tensors, const std::source_location& where) {
  check_array("master", tensors.master, {at::kFloat, at::kDouble}, where);
  if (tensors.master.scalar_type() == at::kFloat) {
    check_array("gradient", tensors.gradient, {at::kFloat, at::kHalf, at::kBFloat16}, where);
    return;
  }
  check_array("gradient", tensors.gradient, {at::kDouble}, where);
  if (tensors.low_precision.defined()) {
    raise_at<UsageError>(where, "low_precision with a master of dtype Double, expected none");
  }
}

UpdateArrays checked_arrays(const UpdateTensors& tensors, size_t num_states,
                            const std::source_location& where) {
  check_dtypes(tensors, where);
  UpdateArrays arrays;
  arrays.numel = tensors.master.numel();
  arrays.master = tensors.master.data_ptr();
  const at::Device device = tensors.master.device();
  check_fits("gradient", tensors.gradient, arrays.numel, device, where);
  arrays.gradient = tensors.gradient.const_data_ptr();
  arrays.gradient_type = element_type(tensors.gradient.scalar_type(), where);
  if (tensors.states.size() != num_states) {
    raise_at<UsageError>(where, "got ", tensors.states.size(), " state tensors, the rule has ", num_states);
  }
  void** next = arrays.states;
  for (const auto& [name, state] : tensors.states) {
    check_array(name, state, {tensors.master.scalar_type()}, where);
    check_fits(name, state, arrays.numel, device, where);
    *next++ = state.data_ptr();
  }
  if (tensors.low_precision.defined()) {
    check_array("low_precision", tensors.low_precision, {at::kHalf, at::kBFloat16}, where);
    check_fits("low_precision", tensors.low_precision, arrays.numel, device, where);
    arrays.low_precision = tensors.low_precision.data_ptr();
    arrays.low_precision_type = element_type(tensors.low_precision.scalar_type(), where);
  }
  check_gradient_scale(tensors.gradient_scale, device, where);
  if (tensors.gradient_scale.defined()) arrays.gradient_scale = tensors.gradient_scale.data_ptr<double>();
  return arrays;
}

UpdateRule with_scale_of(const UpdateTensors& tensors, UpdateRule rule) {
  if (!tensors.gradient_scale.defined()) return rule;
  std::visit([&](auto& r) { r.gradient_scale = tensors.gradient_scale.item<double>(); }, rule);
  return rule;
}

void check_rule(const UpdateTensors& tensors, const UpdateRule& rule, const std::source_location& where) {
  const bool takes_float =
      std::visit([](const auto& r) { return kTakesFloat<std::decay_t<decltype(r)>>; }, rule);
  if (takes_float || tensors.master.scalar_type() != at::kFloat) return;
  raise_at<UsageError>(
      where, "AdamRule with a master of dtype Float, expected Double; kernels::adam() is for Float");
}

}  // namespace

void update(const UpdateTensors& tensors, const UpdateRule& rule, const std::source_location& where) {
  const int num_states = std::visit([](const auto& r) { return r.kNumStates; }, rule);
  const UpdateArrays arrays = checked_arrays(tensors, static_cast<size_t>(num_states), where);
  check_rule(tensors, rule, where);
  if (arrays.numel == 0) {
    return;
  }
  const at::Device device = tensors.master.device();
  if (device.is_cpu()) {
    if (tensors.gradient_scale.defined() && std::isnan(tensors.gradient_scale.item<double>())) return;
    update_cpu(arrays, with_scale_of(tensors, rule));
  } else if (device.is_cuda()) {
    launch_on(device, &CudaKernels::update, arrays, rule);
  } else {
    raise_at<UsageError>(where, "the tensors lie on ", device, ", expected CPU or CUDA");
  }
}

}  // namespace deepspeed::kernels
