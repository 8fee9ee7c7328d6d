// The inverse of owned_state.cpp: loads states that Python has as tensors into the optimizer.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/zero/optimizer_of.h"

namespace deepspeed::python {
namespace {

constexpr const char* kCall = "loading the optimizer's state";

using NamedTensors = std::map<std::string, at::Tensor>;

// At stage 3 the parameter itself may have no elements on this rank.
int64_t whole_numel(const zero::ParamStore& store, size_t group, size_t index) {
  if (const zero::ShardLayout* shards = store.shards(group)) return shards->numel(index);
  return store.groups()[group].layout.place(index).numel();
}

void check_numel(const std::string& name, const at::Tensor& tensor, int64_t numel, const std::string& of) {
  if (tensor.numel() == numel) return;
  raise<UsageError>(kCall, ": '", name, "' has ", tensor.numel(), " elements, ", of, " has ", numel);
}

/// Holds a group's new state. Each tensor is (n), with n the elements that this rank owns.
struct Loaded {
  std::optional<at::Tensor> masters;
  optim::SliceState state;
};

void check(const zero::ZeroOptimizer& optimizer, size_t group, const Loaded& loaded) {
  const int64_t numel = optimizer.state().owned(group).numel();
  const char* const owned = "this rank's part of the group";
  if (loaded.masters) check_numel("the master weights", *loaded.masters, numel, owned);
  for (const auto& [name, tensor] : loaded.state.tensors) check_numel(name, tensor, numel, owned);
  if (!loaded.state.tensors.empty() || loaded.state.step > 0)
    optimizer.base_optimizer().check_state(loaded.state);
}

/// Loads all groups. If one does not fit, throws UsageError and changes nothing.
void load(zero::ZeroOptimizer& optimizer, const std::vector<Loaded>& groups) {
  for (size_t group = 0; group < groups.size(); ++group) check(optimizer, group, groups[group]);
  bool has_masters = false;
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& [masters, whole] = groups[group];
    has_masters = has_masters || masters;
    optimizer.state().change(group, [&](const zero::StateSlice& slice) {
      const auto part = [&](const at::Tensor& flat) {
        return flat.reshape({-1}).narrow(0, slice.interval.begin, slice.interval.numel());
      };
      if (masters) slice.master.copy_(part(*masters));
      optim::SliceState state{{}, whole.step, {}};
      for (const auto& [name, tensor] : whole.tensors) state.tensors.emplace_back(name, part(tensor));
      if (!state.tensors.empty() || state.step > 0) slice.load(state);
    });
  }
  if (has_masters) optimizer.state().publish_masters();
  optimizer.state().was_loaded();
}

using OwnedGroup = std::tuple<std::optional<at::Tensor>, NamedTensors, int64_t>;

/// Loads each group's masters, states and step count for the elements that this rank owns. Collective.
void load_owned_state(TrainingEngine& engine, const std::vector<OwnedGroup>& groups) {
  const c10::NoGradGuard no_grad;
  std::vector<Loaded> loaded;
  for (const auto& [masters, states, step] : groups)
    loaded.push_back({masters, {{states.begin(), states.end()}, step, {}}});
  load(optimizer_with_states(engine, kCall), loaded);
}

// {name of the parameter: {name of the state: tensor of its size}}; the master is the state "".
using WholeGroup = std::pair<std::map<std::string, NamedTensors>, int64_t>;

Loaded owned_part(const zero::ZeroOptimizer& optimizer, size_t group, const WholeGroup& whole) {
  const auto& [params, step] = whole;
  const at::Tensor own = optimizer.state().master(group);
  NamedTensors flats;
  for (const auto& [param, states] : params) {
    for (const auto& [name, tensor] : states) {
      at::Tensor& flat = flats[name];
      if (flat.defined()) continue;
      flat = name.empty() ? own.clone() : at::zeros({own.numel()}, own.options().dtype(tensor.scalar_type()));
    }
  }
  const auto& stored = optimizer.store().groups().at(group).params;
  for (const zero::ParamPiece& piece : optimizer.state().pieces(group)) {
    const auto found = params.find(stored[piece.index].name);
    if (found == params.end()) continue;
    const int64_t numel = whole_numel(optimizer.store(), group, piece.index);
    for (const auto& [name, tensor] : found->second) {
      check_numel(name.empty() ? "the master weight" : name, tensor, numel,
                  "parameter '" + found->first + "'");
      flats[name]
          .narrow(0, piece.in_interval.begin, piece.in_interval.numel())
          .copy_(tensor.detach().reshape({-1}).narrow(0, piece.offset_in_param, piece.in_interval.numel()));
    }
  }
  Loaded loaded{std::nullopt, {{}, step, {}}};
  for (const auto& [name, flat] : flats) {
    if (name.empty()) {
      loaded.masters = flat;
    } else {
      loaded.state.tensors.emplace_back(name, flat);
    }
  }
  return loaded;
}

/// Loads each group's state from whole parameters, and the step count. Collective. A state that a parameter
/// lacks becomes zero; a missing master stays unchanged.
void load_whole_state(TrainingEngine& engine, const std::vector<WholeGroup>& groups) {
  const c10::NoGradGuard no_grad;
  zero::ZeroOptimizer& optimizer = optimizer_with_states(engine, kCall);
  std::vector<Loaded> loaded;
  for (size_t group = 0; group < groups.size(); ++group)
    loaded.push_back(owned_part(optimizer, group, groups[group]));
  load(optimizer, loaded);
}

}  // namespace

void bind_state_loading(py::module_& module) {
  module.def("load_owned_state", &load_owned_state, NoGil(), "engine"_a, "groups"_a);
  module.def("load_whole_state", &load_whole_state, NoGil(), "engine"_a, "groups"_a);
}

}  // namespace deepspeed::python
