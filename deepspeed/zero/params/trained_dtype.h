// In which dtype a parameter is trained: the model's, but fp64 where the model is not cast and it is that.
#pragma once

#include <source_location>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::zero {

/// `model`: what the config casts the model to; kFloat means that it is not cast.
inline at::ScalarType trained_dtype(const at::Tensor& tensor, at::ScalarType model) {
  return model == at::kFloat && tensor.scalar_type() == at::kDouble ? at::kDouble : model;
}

/// Throws UsageError, naming `where` and the parameter, for one that cannot be trained in it: complex,
/// sparse, or in 16 bits where the model is not cast.
void check_trained_dtype(const NamedTensor& param, at::ScalarType model,
                         const std::source_location& where = std::source_location::current());

/// Returns the trained dtype that all of a group's parameters, at least one, share. Throws UsageError, naming
/// the first parameter with another one.
at::ScalarType trained_dtype_of_group(const std::vector<NamedTensor>& params, at::ScalarType model,
                                      const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::zero
