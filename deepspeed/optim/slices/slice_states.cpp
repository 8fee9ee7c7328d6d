#include "deepspeed/optim/slices/slice_states.h"

#include <utility>

#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {

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
