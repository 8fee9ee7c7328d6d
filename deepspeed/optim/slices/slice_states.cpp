// Keeps tensors by slice, and checks what checkpoints bring.
//
// A slice's entry is made at its first step, or by load_state(). copy_state() checks names and sizes. It
// copies only tensors that are shared or have another dtype. Errors name the optimizer that called.
#include "deepspeed/optim/slices/slice_states.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/core/MemoryFormat.h>

#include "deepspeed/base/error.h"

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

SliceStates::SliceStates(std::vector<std::string> names, at::ScalarType dtype,
                         const std::source_location& where)
    : names_(std::move(names)), dtype_(dtype), where_(where) {
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    raise_at<UsageError>(where, "the state's dtype is ", dtype, ", expected Float, Half or BFloat16");
  }
}

SliceStates::Entry& SliceStates::of(const FlatSlice& slice, double initial_value) {
  Entry& entry = entries_[slice.id];
  const auto options =
      slice.master.options().dtype(state_dtype_of(slice, dtype_, where_)).requires_grad(false);
  while (entry.tensors.size() < names_.size()) {
    entry.tensors.push_back(at::full({slice.master.numel()}, initial_value, options));
  }
  for (at::Tensor& tensor : entry.tensors) {
    check_state_numel(slice, tensor, where_);
    tensor = tensor.to(options);  // it may come from a file
  }
  return entry;
}

SliceState SliceStates::state(size_t slice_id) const {
  const auto it = entries_.find(slice_id);
  if (it == entries_.end()) {
    return {};
  }
  SliceState state;
  for (size_t i = 0; i < names_.size(); ++i) {
    state.tensors.emplace_back(names_[i], it->second.tensors[i]);
  }
  state.step = it->second.step;
  return state;
}

void SliceStates::load_state(size_t slice_id, const SliceState& state) {
  auto copies = copy_state(state, names_, dtype_, where_);
  const auto it = entries_.find(slice_id);
  if (it != entries_.end() && it->second.tensors.front().numel() != copies.front().numel()) {
    raise_at<UsageError>(where_, "slice ", slice_id, " has ", it->second.tensors.front().numel(),
                         " elements, the state has ", copies.front().numel());
  }
  entries_[slice_id] = {std::move(copies), state.step, true};
}

void SliceStates::forget_step(size_t slice_id) {
  Entry& entry = entries_.at(slice_id);
  if (--entry.step == 0 && !entry.is_loaded) entries_.erase(slice_id);
}

int64_t SliceStates::bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, entry] : entries_) {
    for (const at::Tensor& tensor : entry.tensors) {
      bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

const Hyperparameters& options_of(const Optimizer& optimizer, const FlatSlice& slice,
                                  const std::source_location& where) {
  if (slice.group >= optimizer.param_groups().size()) {
    raise_at<UsageError>(where, "slice ", slice.id, " names group ", slice.group, " of ",
                         optimizer.param_groups().size());
  }
  return slice.options != nullptr ? *slice.options : optimizer.param_groups()[slice.group].options;
}

void set_defaults(std::vector<ParamGroup>& groups,
                  const std::vector<std::pair<std::string, HyperparameterValue>>& defaults) {
  for (ParamGroup& group : groups) {
    for (const auto& [name, value] : defaults) {
      if (!group.options.contains(name)) {
        group.options.set(name, value);
      }
    }
  }
}

std::vector<ParamGroup> without_bias_correction(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) group.options.set("bias_correction", false);
  return groups;
}

}  // namespace deepspeed::optim
