// Reads and writes what the optimizer holds of one parameter, wherever its partitions lie. DeepSpeed's names;
// here they take the engine as well, since nothing is hung on tensors.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/engine/later_calls.h"

namespace deepspeed {

class Engine;

// With ZeRO all ranks make these calls, in the same order. A parameter is the model's own tensor; values have
// its shape. Throws UsageError for a tensor that is no parameter of the engine's optimizer, which frozen
// parameters are not, and for a value of another size.

/// The fp32 weights, a copy.
at::Tensor safe_get_full_fp32_param(const Engine& engine, const at::Tensor& param);
/// Sets the fp32 weights, and the model's to them.
void safe_set_full_fp32_param(Engine& engine, const at::Tensor& param, const at::Tensor& value);
/// A state of the optimizer by its name ("exp_avg", ...), a copy; an undefined tensor before the first step.
/// Throws UsageError, naming the states that there are, for an unknown one.
at::Tensor safe_get_full_optimizer_state(const Engine& engine, const at::Tensor& param,
                                         const std::string& optim_state_key);
/// Throws UsageError before the first step.
void safe_set_full_optimizer_state(Engine& engine, const at::Tensor& param, const at::Tensor& value,
                                   const std::string& optim_state_key);

template <class... Args>
void safe_get_full_grad(Args&&...) {
  refuse_later_call("safe_get_full_grad", "stage 3", "register a hook on the parameter to see its gradient");
}
template <class... Args>
void safe_set_full_grad(Args&&...) {
  refuse_later_call("safe_set_full_grad", "stage 3",
                    "register a hook on the parameter to change its gradient");
}

}  // namespace deepspeed
