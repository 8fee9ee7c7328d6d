// Reading a SliceState that comes from a checkpoint.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Copies of the tensors named, in the order of `names`, flat and of `dtype`. Throws UsageError, naming
/// `where` and the tensor, unless the state holds exactly these, all of one size.
std::vector<at::Tensor> copy_state(const char* where, const SliceState& state,
                                   const std::vector<std::string>& names, at::ScalarType dtype);

/// `dtype`, the one of an optimizer's states; fp64 where the slice's masters are. Throws UsageError where
/// they are and `dtype` is another one than fp32.
at::ScalarType state_dtype_of(const char* where, const FlatSlice& slice, at::ScalarType dtype);
/// Throws UsageError as copy_state() does for names and step, and makes no copies.
void check_state_names(const char* where, const SliceState& state, const std::vector<std::string>& names);

/// Throws UsageError unless a state tensor of a slice has the slice's size.
void check_state_numel(const char* where, const FlatSlice& slice, const at::Tensor& state);

}  // namespace deepspeed::optim
