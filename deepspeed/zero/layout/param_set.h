// A set of parameters, identified by the model's tensors.
#pragma once

#include <unordered_set>

#include <c10/core/TensorImpl.h>

namespace deepspeed::zero {

using ParamSet = std::unordered_set<const c10::TensorImpl*>;

}  // namespace deepspeed::zero
