// A slice state holds what an optimizer keeps for a slice. The functions here check and copy states from
// checkpoints.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::optim {

struct FlatSlice;

/// Holds the state of one slice. It has named flat tensors of the slice's size, the number of steps made, and
/// named lists of numbers. A list has one number per parameter of the slice's group, equal on all ranks.
struct SliceState {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {};  // e.g. exp_avg, exp_avg_sq
  int64_t step = 0;
  std::vector<std::pair<std::string, std::vector<double>>> numbers = {};  // e.g. lamb_coeff_freeze
};

/// Copies the named tensors, flattened and converted to `dtype`, in the order of `names`. Throws UsageError,
/// naming `where` and the tensor, unless the state holds exactly these, all of one size.
DEEPSPEED_API std::vector<at::Tensor> copy_state(
    const SliceState& state, const std::vector<std::string>& names, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());

/// Returns the dtype of a slice's state: `dtype`, or fp64 for fp64 masters. Throws UsageError for fp64
/// masters if `dtype` is not fp32.
DEEPSPEED_API at::ScalarType state_dtype_of(
    const FlatSlice& slice, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());
/// Throws UsageError if copy_state() would reject the names or the step.
DEEPSPEED_API void check_state_names(const SliceState& state, const std::vector<std::string>& names,
                                     const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the state tensor has the slice's size.
DEEPSPEED_API void check_state_numel(const FlatSlice& slice, const at::Tensor& state,
                                     const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::optim
