#include "deepspeed/optim/algorithms/sgd.h"

#include <utility>

#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> with_sgd_defaults(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) {
    Hyperparameters& options = group.options;
    if (!options.contains("lr")) options.set("lr", 1e-3);
    for (const char* name : {"momentum", "dampening", "weight_decay"}) {
      if (!options.contains(name)) options.set(name, 0.0);
    }
    if (!options.contains("nesterov")) options.set("nesterov", false);
    if (options.flag("nesterov") && (options.number("momentum") <= 0 || options.number("dampening") != 0)) {
      raise<UsageError>("nesterov needs a momentum above 0 and a dampening of 0, got momentum ",
                        options.number("momentum"), " and dampening ", options.number("dampening"));
    }
  }
  return groups;
}

kernels::MomentumSgdRule momentum_rule(const Hyperparameters& group, double gradient_scale, bool first) {
  const bool nesterov = group.flag("nesterov");
  kernels::MomentumSgdRule rule;
  rule.gradient_scale = gradient_scale;
  rule.l2_decay = group.number("weight_decay");
  rule.lr = group.number("lr");
  rule.momentum = group.number("momentum");
  rule.fresh = first ? 1.0 : 1 - group.number("dampening");
  rule.direct = nesterov ? 1.0 : 0.0;
  rule.look_ahead = nesterov ? rule.momentum : 1.0;
  return rule;
}

}  // namespace

Sgd::Sgd(std::vector<ParamGroup> groups) : Optimizer(with_sgd_defaults(std::move(groups))) {}

void Sgd::step(const FlatSlice& slice, double gradient_scale) {
  const Hyperparameters& group = options_of(*this, slice);
  const double momentum = group.number("momentum");
  Momentum& state = momenta_[slice.id];
  state.made_buffer = false;
  if (momentum == 0) {
    kernels::SgdRule rule;
    rule.gradient_scale = gradient_scale;
    rule.l2_decay = group.number("weight_decay");
    rule.lr = group.number("lr");
    kernels::update({slice.master, slice.gradient, slice.low_precision, {}, slice.scale_on_device}, rule);
  } else {
    const bool first = !state.buffer.defined();
    state.made_buffer = first;
    if (first) {
      state.buffer = at::zeros_like(slice.master);
    }
    check_state_numel(slice, state.buffer);
    state.buffer = state.buffer.to(slice.master.options());  // it may come from a file
    kernels::update({slice.master,
                     slice.gradient,
                     slice.low_precision,
                     {{"momentum_buffer", state.buffer}},
                     slice.scale_on_device},
                    momentum_rule(group, gradient_scale, first));
  }
  ++state.step;
}

void Sgd::forget_step(size_t slice_id) {
  Momentum& state = momenta_.at(slice_id);
  if (std::exchange(state.made_buffer, false)) state.buffer.reset();
  if (--state.step == 0 && !state.is_loaded) momenta_.erase(slice_id);
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

void Sgd::check_state(const SliceState& state) const {
  if (!state.tensors.empty()) check_state_names(state, {"momentum_buffer"});
}

void Sgd::load_state(size_t slice_id, const SliceState& state) {
  Momentum loaded;
  loaded.step = state.step;
  loaded.is_loaded = true;
  if (!state.tensors.empty()) {
    loaded.buffer = copy_state(state, {"momentum_buffer"}, at::kFloat)[0];
  }
  const auto it = momenta_.find(slice_id);
  const bool both = it != momenta_.end() && it->second.buffer.defined() && loaded.buffer.defined();
  if (both && it->second.buffer.numel() != loaded.buffer.numel()) {
    raise<UsageError>("slice ", slice_id, " has ", it->second.buffer.numel(), " elements, the state has ",
                      loaded.buffer.numel());
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
