#include "deepspeed/optim/slices/slice_state.h"

#include <algorithm>

#include <c10/core/MemoryFormat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {
namespace {

const at::Tensor& find(const SliceState& state, const std::string& name, const std::source_location& where) {
  const auto it = std::find_if(state.tensors.begin(), state.tensors.end(),
                               [&](const auto& item) { return item.first == name; });
  if (it == state.tensors.end()) {
    raise_at<UsageError>(where, "the state holds no tensor '", name, "'");
  }
  if (!it->second.defined() || !at::isFloatingType(it->second.scalar_type())) {
    raise_at<UsageError>(where, "state tensor '", name, "' is undefined or holds no floating point numbers");
  }
  return it->second;
}

}  // namespace

void check_state_names(const SliceState& state, const std::vector<std::string>& names,
                       const std::source_location& where) {
  for (const auto& [name, tensor] : state.tensors) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      raise_at<UsageError>(where, "the state holds '", name, "', which this optimizer does not know");
    }
  }
  if (state.step < 0) {
    raise_at<UsageError>(where, "the state's step is ", state.step, ", expected at least 0");
  }
  for (const std::string& name : names) find(state, name, where);
}

std::vector<at::Tensor> copy_state(const SliceState& state, const std::vector<std::string>& names,
                                   at::ScalarType dtype, const std::source_location& where) {
  check_state_names(state, names, where);
  std::vector<at::Tensor> copies;
  for (const std::string& name : names) {
    const at::Tensor& tensor = find(state, name, where);
    if (!copies.empty() && tensor.numel() != copies.front().numel()) {
      raise_at<UsageError>(where, "state tensor '", name, "' has ", tensor.numel(), " elements, '",
                           names.front(), "' has ", copies.front().numel());
    }
    // A tensor with no other reference need not be copied.
    const bool is_shared = tensor.use_count() > 1 || tensor.storage().use_count() > 1;
    const bool stays_double = dtype == at::kFloat && tensor.scalar_type() == at::kDouble;
    copies.push_back(tensor.detach()
                         .reshape({-1})
                         .to(stays_double ? at::kDouble : dtype, /*non_blocking=*/false, is_shared)
                         .contiguous());
  }
  return copies;
}

at::ScalarType state_dtype_of(const FlatSlice& slice, at::ScalarType dtype,
                              const std::source_location& where) {
  if (slice.master.scalar_type() != at::kDouble) return dtype;
  if (dtype == at::kFloat) return at::kDouble;
  raise_at<UsageError>(where, "a state of dtype ", dtype,
                       " for parameters of dtype Double, whose state is Double; ",
                       "ask for fp32 states, or convert the parameters to Float");
}

void check_state_numel(const FlatSlice& slice, const at::Tensor& state, const std::source_location& where) {
  if (state.numel() != slice.master.numel()) {
    raise_at<UsageError>(where, "slice ", slice.id, " has ", slice.master.numel(),
                         " elements, its state has ", state.numel());
  }
}

}  // namespace deepspeed::optim
