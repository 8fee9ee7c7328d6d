// Reads and writes what the optimizer holds of one parameter, wherever its partitions lie. DeepSpeed's names;
// here they take the engine as well, since nothing is hung on tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

class TrainingEngine;

// With ZeRO all ranks make these calls, in the same order. A parameter is the model's own tensor; values have
// its shape. Throws UsageError for a tensor that is no parameter of the engine's optimizer, which frozen
// parameters are not, and for a value of another size. What is fp32 here is fp64 of a parameter in fp64.

/// The fp32 weights, a copy.
DEEPSPEED_API at::Tensor safe_get_full_fp32_param(const TrainingEngine& engine, const at::Tensor& param);
/// Sets the fp32 weights, and the model's to them.
DEEPSPEED_API void safe_set_full_fp32_param(TrainingEngine& engine, const at::Tensor& param,
                                            const at::Tensor& value);
/// A state of the optimizer by its name ("exp_avg", ...), a copy; an undefined tensor before the first step.
/// Throws UsageError, naming the states that there are, for an unknown one.
DEEPSPEED_API at::Tensor safe_get_full_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                                       const std::string& optim_state_key);
/// Throws UsageError before the first step.
DEEPSPEED_API void safe_set_full_optimizer_state(TrainingEngine& engine, const at::Tensor& param,
                                                 const at::Tensor& value, const std::string& optim_state_key);

// Gradients are there from the end of the backward at the accumulation boundary (after a direct
// loss.backward(): from Engine::finish_backward()) until step() or zero_grad(); else these calls throw
// UsageError. They are those of the whole batch, and carry the loss scale, as in DeepSpeed. Inside of
// no_sync() and coalesce_grad_reduction() safe_get_full_grad() returns what this rank alone has summed.

/// The gradient of the whole batch, a copy in fp32.
DEEPSPEED_API at::Tensor safe_get_full_grad(const TrainingEngine& engine, const at::Tensor& param);
/// What step() will use, rounded to the dtype of the sums. All ranks give the same value.
DEEPSPEED_API void safe_set_full_grad(TrainingEngine& engine, const at::Tensor& param,
                                      const at::Tensor& value);
/// Sets the gradient of each parameter to what `update_func(gradient, parameter)` returns of it.
DEEPSPEED_API void safe_update_full_grad_vectorized(
    TrainingEngine& engine, const std::vector<at::Tensor>& param_list,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& param)>& update_func);

// This rank's part of a parameter that stage 3 has partitioned: (ceil(numel / ranks)), with zeros at the end
// of the last parts. These calls talk to no rank. Besides what the ones above throw, they throw UsageError at
// the other stages, which partition no parameter.

/// The fp32 weights, a copy.
DEEPSPEED_API at::Tensor safe_get_local_fp32_param(const TrainingEngine& engine, const at::Tensor& param);
/// Sets the fp32 weights, and the model's to them. All ranks call it.
DEEPSPEED_API void safe_set_local_fp32_param(TrainingEngine& engine, const at::Tensor& param,
                                             const at::Tensor& value);
/// A state of the optimizer, a copy; an undefined tensor before the first step.
DEEPSPEED_API at::Tensor safe_get_local_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                                        const std::string& optim_state_key);
/// Throws UsageError before the first step.
DEEPSPEED_API void safe_set_local_optimizer_state(TrainingEngine& engine, const at::Tensor& param,
                                                  const at::Tensor& value,
                                                  const std::string& optim_state_key);
/// The gradient of the whole batch, a copy in fp32.
DEEPSPEED_API at::Tensor safe_get_local_grad(const TrainingEngine& engine, const at::Tensor& param);
/// What step() will use of it.
DEEPSPEED_API void safe_set_local_grad(TrainingEngine& engine, const at::Tensor& param,
                                       const at::Tensor& value);

}  // namespace deepspeed
