#include "deepspeed/optim/sgd.h"

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slice_state.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kWhere = "optim.sgd";

std::vector<ParamGroup> with_defaults(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) {
    Hyperparameters& options = group.options;
    if (!options.contains("lr")) options.set("lr", 1e-3);
    for (const char* name : {"momentum", "dampening", "weight_decay"}) {
      if (!options.contains(name)) options.set(name, 0.0);
    }
    if (!options.contains("nesterov")) options.set("nesterov", false);
    if (options.flag("nesterov") && (options.number("momentum") <= 0 || options.number("dampening") != 0)) {
      raise<UsageError>(kWhere, "nesterov needs a momentum above 0 and a dampening of 0, got momentum ",
                        options.number("momentum"), " and dampening ", options.number("dampening"));
    }
  }
  return groups;
}

}  // namespace

Sgd::Sgd(std::vector<ParamGroup> groups) : Optimizer(with_defaults(std::move(groups))) {}

void Sgd::step(const FlatSlice& slice, double gradient_scale) {
  if (slice.group >= param_groups().size()) {
    raise<UsageError>(kWhere, "slice ", slice.id, " names group ", slice.group, " of ",
                      param_groups().size());
  }
  const Hyperparameters& group = param_groups()[slice.group].options;
  const double momentum = group.number("momentum");
  at::Tensor master = slice.master.detach();
  at::Tensor gradient = slice.gradient.detach().to(at::kFloat).mul(gradient_scale);
  if (group.number("weight_decay") != 0) {
    gradient.add_(master, group.number("weight_decay"));
  }
  Momentum& state = momenta_[slice.id];
  if (momentum != 0) {
    if (state.buffer.defined()) {
      check_state_numel(kWhere, slice, state.buffer);
      state.buffer = state.buffer.to(master.device());
      state.buffer.mul_(momentum).add_(gradient, 1 - group.number("dampening"));
    } else {
      state.buffer = gradient.clone();
    }
    gradient = group.flag("nesterov") ? gradient.add(state.buffer, momentum) : state.buffer;
  }
  master.add_(gradient, -group.number("lr"));
  if (slice.low_precision.defined()) {
    slice.low_precision.detach().copy_(master);
  }
  ++state.step;
}

SliceState Sgd::state(size_t slice_id) const {
  const auto it = momenta_.find(slice_id);
  if (it == momenta_.end()) {
    return {};
  }
  SliceState state;
  if (it->second.buffer.defined()) {
    state.tensors.emplace_back("momentum_buffer", it->second.buffer);
  }
  state.step = it->second.step;
  return state;
}

void Sgd::load_state(size_t slice_id, const SliceState& state) {
  Momentum loaded;
  loaded.step = state.step;
  if (!state.tensors.empty()) {
    loaded.buffer = copy_state(kWhere, state, {"momentum_buffer"}, at::kFloat)[0];
  }
  const auto it = momenta_.find(slice_id);
  const bool both = it != momenta_.end() && it->second.buffer.defined() && loaded.buffer.defined();
  if (both && it->second.buffer.numel() != loaded.buffer.numel()) {
    raise<UsageError>(kWhere, "slice ", slice_id, " has ", it->second.buffer.numel(),
                      " elements, the state has ", loaded.buffer.numel());
  }
  momenta_[slice_id] = loaded;
}

int64_t Sgd::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, momentum] : momenta_) {
    bytes += momentum.buffer.defined() ? static_cast<int64_t>(momentum.buffer.nbytes()) : 0;
  }
  return bytes;
}

}  // namespace deepspeed::optim
