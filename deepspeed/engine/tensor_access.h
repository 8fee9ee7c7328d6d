// Reads and writes what the optimizer holds of one parameter, wherever its partitions are. The names are
// DeepSpeed's. Unlike there the calls also take the engine, since nothing is attached to tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

class TrainingEngine;

// With ZeRO all ranks make these calls, in the same order. A parameter is the model's own tensor; values have
// its shape. Throws UsageError for a tensor that the engine's optimizer does not update, such as a frozen
// parameter, and for a value of another size. "fp32" means fp64 for parameters in fp64.

/// Returns a copy of the fp32 weights.
DEEPSPEED_API at::Tensor safe_get_full_fp32_param(const TrainingEngine& engine, const at::Tensor& param);
/// Sets the fp32 weights, and the model's weights from them.
DEEPSPEED_API void safe_set_full_fp32_param(TrainingEngine& engine, const at::Tensor& param,
                                            const at::Tensor& value);
/// Returns a copy of an optimizer state by name ("exp_avg", ...). Before the first step the result is an
/// undefined tensor. Throws UsageError, listing the existing states, for an unknown one.
DEEPSPEED_API at::Tensor safe_get_full_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                                       const std::string& optim_state_key);
/// Sets an optimizer state. Throws UsageError before the first step.
DEEPSPEED_API void safe_set_full_optimizer_state(TrainingEngine& engine, const at::Tensor& param,
                                                 const at::Tensor& value, const std::string& optim_state_key);

// Gradients exist from the end of the backward at the accumulation boundary until step() or zero_grad().
// After a direct loss.backward() they exist from Engine::finish_backward(). At other times these calls throw
// UsageError. Gradients are those of the whole batch and include the loss scale, as in DeepSpeed. Inside of
// no_sync() and coalesce_grad_reduction() safe_get_full_grad() returns this rank's own sum.

/// Returns a copy of the whole batch's gradient, in fp32.
DEEPSPEED_API at::Tensor safe_get_full_grad(const TrainingEngine& engine, const at::Tensor& param);
/// Sets the gradient that step() will use. It is rounded to the dtype in which gradients are summed. All
/// ranks pass the same value.
DEEPSPEED_API void safe_set_full_grad(TrainingEngine& engine, const at::Tensor& param,
                                      const at::Tensor& value);
/// Sets the gradient of each parameter to the result of `update_func(gradient, parameter)`.
DEEPSPEED_API void safe_update_full_grad_vectorized(
    TrainingEngine& engine, const std::vector<at::Tensor>& param_list,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& param)>& update_func);

// These calls access this rank's part of a parameter that stage 3 has partitioned. The part has the shape
// (ceil(numel / ranks)); the last ranks' parts have zeros at the end. Except safe_set_local_fp32_param() the
// calls do not communicate. They also throw UsageError at other stages, which partition no parameter.

/// Returns a copy of this rank's fp32 weights.
DEEPSPEED_API at::Tensor safe_get_local_fp32_param(const TrainingEngine& engine, const at::Tensor& param);
/// Sets this rank's fp32 weights, and the model's weights from them. Collective.
DEEPSPEED_API void safe_set_local_fp32_param(TrainingEngine& engine, const at::Tensor& param,
                                             const at::Tensor& value);
/// Returns a copy of this rank's part of an optimizer state. Before the first step the result is an undefined
/// tensor.
DEEPSPEED_API at::Tensor safe_get_local_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                                        const std::string& optim_state_key);
/// Sets this rank's part of an optimizer state. Throws UsageError before the first step.
DEEPSPEED_API void safe_set_local_optimizer_state(TrainingEngine& engine, const at::Tensor& param,
                                                  const at::Tensor& value,
                                                  const std::string& optim_state_key);
/// Returns a copy of this rank's part of the whole batch's gradient, in fp32.
DEEPSPEED_API at::Tensor safe_get_local_grad(const TrainingEngine& engine, const at::Tensor& param);
/// Sets this rank's part of the gradient that step() will use.
DEEPSPEED_API void safe_set_local_grad(TrainingEngine& engine, const at::Tensor& param,
                                       const at::Tensor& value);

}  // namespace deepspeed
