// Implements the sub-groups of DeepSpeedCPUAdam.
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

namespace deepspeed {
namespace {

// Returns the only parameter of the groups that has a gradient, and its group.
std::pair<size_t, at::Tensor> only_parameter(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                             int64_t subgroup_id) {
  std::pair<size_t, at::Tensor> found;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& parameter : groups[g].params()) {
      if (!parameter.grad().defined()) continue;
      if (found.second.defined()) {
        raise<UsageError>("step_subgroup(", subgroup_id, "): the groups hold several parameters with a ",
                          "gradient, expected the sub-group's own alone");
      }
      found = {g, parameter};
    }
  }
  if (!found.second.defined()) {
    raise<UsageError>("step_subgroup(", subgroup_id,
                      "): the groups hold no parameter with a gradient, expected the sub-group's own");
  }
  return found;
}

// Returns the state before a first step, as a rollback of that step restores it.
optim::SliceState as_before_the_first_step(const optim::SliceState& after) {
  optim::SliceState state;
  for (const auto& [name, tensor] : after.tensors) state.tensors.emplace_back(name, at::zeros_like(tensor));
  return state;
}

}  // namespace

size_t DeepSpeedCPUAdam::slice_of(int64_t subgroup_id) {
  const auto found = slices_.find(subgroup_id);
  return found != slices_.end() ? found->second : slices_.emplace(subgroup_id, new_slice_id()).first->second;
}

at::Tensor DeepSpeedCPUAdam::step_subgroup(int64_t subgroup_id, LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  optim::FlatOptimizer& optimizer = flat();
  const auto [group, parameter] = only_parameter(param_groups(), subgroup_id);
  const size_t slice = slice_of(subgroup_id);
  Undo undo{parameter, parameter.detach().clone(), optimizer.state(slice)};
  for (auto& [name, tensor] : undo.state.tensors) tensor = tensor.clone();
  undos_.erase(subgroup_id);
  step_slice(slice, group, parameter, gradient_scale(param_groups()[group]));
  if (undo.state.tensors.empty()) undo.state = as_before_the_first_step(optimizer.state(slice));
  undos_[subgroup_id] = std::move(undo);
  return loss;
}

void DeepSpeedCPUAdam::rollback_subgroup(int64_t subgroup_id) {
  const auto found = undos_.find(subgroup_id);
  if (found == undos_.end()) {
    raise<UsageError>("rollback_subgroup(", subgroup_id,
                      "): the sub-group has made no step since its last rollback or release_rollbacks()");
  }
  const at::NoGradGuard no_grad;
  found->second.parameter.detach().copy_(found->second.weights);
  flat().load_state(slice_of(subgroup_id), found->second.state);
  undos_.erase(found);
}

optim::SliceState DeepSpeedCPUAdam::state_of_subgroup(int64_t subgroup_id) const {
  const auto found = slices_.find(subgroup_id);
  return found == slices_.end() || flat_if_made() == nullptr ? optim::SliceState{}
                                                             : flat_if_made()->state(found->second);
}

void DeepSpeedCPUAdam::load_state_of_subgroup(int64_t subgroup_id, const optim::SliceState& state) {
  flat().load_state(slice_of(subgroup_id), state);
  undos_.erase(subgroup_id);
}

}  // namespace deepspeed
