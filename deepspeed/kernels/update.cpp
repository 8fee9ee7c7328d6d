#include "deepspeed/kernels/update.h"

#include <cstddef>
#include <type_traits>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/update_cpu.h"
#include "deepspeed/kernels/cuda/update_cuda.h"

namespace deepspeed::kernels {
namespace {

void check_dtypes(const char* where, const UpdateTensors& tensors) {
  check_array(where, "master", tensors.master, {at::kFloat, at::kDouble});
  if (tensors.master.scalar_type() == at::kFloat) {
    check_array(where, "gradient", tensors.gradient, {at::kFloat, at::kHalf, at::kBFloat16});
    return;
  }
  check_array(where, "gradient", tensors.gradient, {at::kDouble});
  if (tensors.low_precision.defined()) {
    raise<UsageError>(where, "low_precision beside a master of dtype Double, expected none");
  }
}

UpdateArrays checked_arrays(const char* where, const UpdateTensors& tensors, size_t num_states) {
  check_dtypes(where, tensors);
  UpdateArrays arrays;
  arrays.numel = tensors.master.numel();
  arrays.master = tensors.master.data_ptr();
  const at::Device device = tensors.master.device();
  check_fits(where, "gradient", tensors.gradient, arrays.numel, device);
  arrays.gradient = tensors.gradient.const_data_ptr();
  arrays.gradient_type = element_type(where, tensors.gradient.scalar_type());
  if (tensors.states.size() != num_states) {
    raise<UsageError>(where, "got ", tensors.states.size(), " state tensors, the rule has ", num_states);
  }
  void** next = arrays.states;
  for (const auto& [name, state] : tensors.states) {
    check_array(where, name, state, {tensors.master.scalar_type()});
    check_fits(where, name, state, arrays.numel, device);
    *next++ = state.data_ptr();
  }
  if (tensors.low_precision.defined()) {
    check_array(where, "low_precision", tensors.low_precision, {at::kHalf, at::kBFloat16});
    check_fits(where, "low_precision", tensors.low_precision, arrays.numel, device);
    arrays.low_precision = tensors.low_precision.data_ptr();
    arrays.low_precision_type = element_type(where, tensors.low_precision.scalar_type());
  }
  return arrays;
}

void check_rule(const char* where, const UpdateTensors& tensors, const UpdateRule& rule) {
  const bool takes_float =
      std::visit([](const auto& r) { return kTakesFloat<std::decay_t<decltype(r)>>; }, rule);
  if (takes_float || tensors.master.scalar_type() != at::kFloat) return;
  raise<UsageError>(where,
                    "AdamRule with a master of dtype Float, expected Double; kernels::adam() is for Float");
}

}  // namespace

void update(const char* where, const UpdateTensors& tensors, const UpdateRule& rule) {
  const int num_states = std::visit([](const auto& r) { return r.kNumStates; }, rule);
  const UpdateArrays arrays = checked_arrays(where, tensors, static_cast<size_t>(num_states));
  check_rule(where, tensors, rule);
  if (arrays.numel == 0) {
    return;
  }
  const at::Device device = tensors.master.device();
  if (device.is_cpu()) {
    update_cpu(arrays, rule);
  } else if (device.is_cuda()) {
    update_cuda(arrays, rule, device.index());
  } else {
    raise<UsageError>(where, "the tensors lie on ", device, ", expected CPU or CUDA");
  }
}

}  // namespace deepspeed::kernels
