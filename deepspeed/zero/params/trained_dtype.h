// The dtype in which a parameter is trained: the model's, or fp64 for fp64 parameters of an uncast model.
#pragma once

#include <source_location>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::zero {

/// Returns the dtype in which `tensor` is trained. `model`: the dtype to which the config casts the model;
/// kFloat: not cast.
inline at::ScalarType trained_dtype(const at::Tensor& tensor, at::ScalarType model) {
  return model == at::kFloat && tensor.scalar_type() == at::kDouble ? at::kDouble : model;
}

/// Throws UsageError if a parameter is complex, sparse, or 16-bit in an uncast model. The error names the
/// parameter and the place `where`.
void check_trained_dtype(const NamedTensor& param, at::ScalarType model,
                         const std::source_location& where = std::source_location::current());

/// Returns the trained dtype that a group's parameters share. The group must not be empty. Throws UsageError
/// naming the first parameter with another dtype.
at::ScalarType trained_dtype_of_group(const std::vector<NamedTensor>& params, at::ScalarType model,
                                      const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::zero
