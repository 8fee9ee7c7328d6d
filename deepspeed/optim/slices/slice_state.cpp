#include "deepspeed/optim/slices/slice_state.h"

#include <algorithm>

#include <c10/core/MemoryFormat.h>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {
namespace {

const at::Tensor& find(const char* where, const SliceState& state, const std::string& name) {
  const auto it = std::find_if(state.tensors.begin(), state.tensors.end(),
                               [&](const auto& item) { return item.first == name; });
  if (it == state.tensors.end()) {
    raise<UsageError>(where, "the state holds no tensor '", name, "'");
  }
  if (!it->second.defined() || !at::isFloatingType(it->second.scalar_type())) {
    raise<UsageError>(where, "state tensor '", name, "' is undefined or holds no floating point numbers");
  }
  return it->second;
}

}  // namespace

void check_state_names(const char* where, const SliceState& state, const std::vector<std::string>& names) {
  for (const auto& [name, tensor] : state.tensors) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      raise<UsageError>(where, "the state holds '", name, "', which this optimizer does not know");
    }
  }
  if (state.step < 0) {
    raise<UsageError>(where, "the state's step is ", state.step, ", expected at least 0");
  }
  for (const std::string& name : names) find(where, state, name);
}

std::vector<at::Tensor> copy_state(const char* where, const SliceState& state,
                                   const std::vector<std::string>& names, at::ScalarType dtype) {
  check_state_names(where, state, names);
  std::vector<at::Tensor> copies;
  for (const std::string& name : names) {
    const at::Tensor& tensor = find(where, state, name);
    if (!copies.empty() && tensor.numel() != copies.front().numel()) {
      raise<UsageError>(where, "state tensor '", name, "' has ", tensor.numel(), " elements, '",
                        names.front(), "' has ", copies.front().numel());
    }
    // A tensor without another handle need not be copied.
    const bool is_shared = tensor.use_count() > 1 || tensor.storage().use_count() > 1;
    const bool stays_double = dtype == at::kFloat && tensor.scalar_type() == at::kDouble;
    copies.push_back(tensor.detach()
                         .reshape({-1})
                         .to(stays_double ? at::kDouble : dtype, /*non_blocking=*/false, is_shared)
                         .contiguous());
  }
  return copies;
}

at::ScalarType state_dtype_of(const char* where, const FlatSlice& slice, at::ScalarType dtype) {
  if (slice.master.scalar_type() != at::kDouble) return dtype;
  if (dtype == at::kFloat) return at::kDouble;
  raise<UsageError>(where, "a state of dtype ", dtype,
                    " for parameters of dtype Double, whose state is Double; ",
                    "ask for fp32 states, or convert the parameters to Float");
}

void check_state_numel(const char* where, const FlatSlice& slice, const at::Tensor& state) {
  if (state.numel() != slice.master.numel()) {
    raise<UsageError>(where, "slice ", slice.id, " has ", slice.master.numel(), " elements, its state has ",
                      state.numel());
  }
}

}  // namespace deepspeed::optim
