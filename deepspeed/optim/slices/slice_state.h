// A slice state holds what an optimizer keeps of a slice; it is read here where it comes from a checkpoint.
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

/// Holds the state of one slice: named flat tensors of its size, the number of steps made, and under further
/// names a number for each parameter of the slice's group, alike on all ranks.
struct SliceState {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {};  // e.g. exp_avg, exp_avg_sq
  int64_t step = 0;
  std::vector<std::pair<std::string, std::vector<double>>> numbers = {};  // e.g. lamb_coeff_freeze
};

/// Copies the named tensors, in the order of `names`, flat and of `dtype`. Throws UsageError, naming `where`
/// and the tensor, unless the state holds exactly these, all of one size.
DEEPSPEED_API std::vector<at::Tensor> copy_state(
    const SliceState& state, const std::vector<std::string>& names, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());

/// Returns the dtype of a slice's state: `dtype`, or fp64 where the slice's masters are fp64. Throws
/// UsageError where they are and `dtype` is another one than fp32.
DEEPSPEED_API at::ScalarType state_dtype_of(
    const FlatSlice& slice, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());
/// Checks names and step as copy_state() does, and makes no copies. Throws UsageError.
DEEPSPEED_API void check_state_names(const SliceState& state, const std::vector<std::string>& names,
                                     const std::source_location& where = std::source_location::current());

/// Throws UsageError unless a state tensor of a slice has the slice's size.
DEEPSPEED_API void check_state_numel(const FlatSlice& slice, const at::Tensor& state,
                                     const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::optim
