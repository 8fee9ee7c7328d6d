// DeepSpeed's announcement that a module uses a parameter that stands in another one. Nothing needs it here:
// an operator gathers what it uses, whoever's it is. Programs that say so all the same may go on doing it.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"

namespace torch::nn {
class Module;
}

namespace deepspeed::zero {

/// Throws UsageError for a parameter that is undefined.
inline void register_external_parameter(const torch::nn::Module&, const at::Tensor& parameter) {
  if (!parameter.defined()) raise<UsageError>("got an undefined tensor, expected a parameter");
}
inline void unregister_external_parameter(const torch::nn::Module& module, const at::Tensor& parameter) {
  register_external_parameter(module, parameter);
}

}  // namespace deepspeed::zero
