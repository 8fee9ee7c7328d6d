// A set of parameters, by the tensors of the model.
#pragma once

#include <unordered_set>

#include <c10/core/TensorImpl.h>

namespace deepspeed::zero {

using ParamSet = std::unordered_set<const c10::TensorImpl*>;

}  // namespace deepspeed::zero
