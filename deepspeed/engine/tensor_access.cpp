// A call finds the parameter's place in the optimizer and reads this rank's part. To return a whole value it
// sums the parts of all ranks. Writes are cut to this rank's part and reach the master, state or gradient.
#include "deepspeed/engine/tensor_access.h"

#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

// Holds which elements of a parameter this rank owns, and where they begin in its part of the group.
struct Place {
  size_t group = 0;
  size_t index = 0;
  Interval elements;
  int64_t begin = 0;
};

Place place_in(const zero::ZeroOptimizer& optimizer, size_t group, size_t index) {
  if (const zero::ShardLayout* shards = optimizer.store().shards(group))
    return {group, index, shards->elements(index, optimizer.ranks().shard.rank()),
            shards->place(index).begin};
  const Interval in_flat = optimizer.store().groups()[group].layout.place(index);
  const Interval owned = optimizer.state().owned(group);
  const Interval common = intersect(owned, in_flat);
  if (common.empty()) return {group, index, {}, 0};
  return {
      group, index, {common.begin - in_flat.begin, common.end - in_flat.begin}, common.begin - owned.begin};
}

Place place_of(const TrainingEngine& engine, const at::Tensor& param) {
  engine.require_states_here("safe_get or safe_set");
  if (engine.optimizer() && param.defined()) {
    const auto& groups = engine.optimizer()->store().groups();
    for (size_t group = 0; group < groups.size(); ++group) {
      for (size_t index = 0; index < groups[group].params.size(); ++index) {
        if (groups[group].params[index].tensor.is_same(param))
          return place_in(*engine.optimizer(), group, index);
      }
    }
  }
  raise<UsageError>("the tensor is no parameter that the engine's optimizer updates");
}

// Returns the place's interval in what this rank owns of the group.
Interval owned_part(const Place& place) { return {place.begin, place.begin + place.elements.numel()}; }

// Returns what this rank holds of the parameter at stage 3, padding included.
Interval local_part(const TrainingEngine& engine, const Place& place) {
  return engine.optimizer()->store().shards(place.group)->place(place.index);
}

// If the state is on a disk, a failure on one rank is an error on all.
zero::GroupState read_state(const TrainingEngine& engine, const Place& place) {
  zero::GroupState state;
  engine.optimizer()->state().on_all_ranks("reading the optimizer's state", [&] {
    state = engine.optimizer()->state().of(place.group, owned_part(place));
  });
  return state;
}

// Each element is owned by exactly one of the ranks in the shard group, so a sum over them is the value. At
// stage 0 every rank owns all and nothing is summed.
// `own`: this rank's elements.
at::Tensor gather(const TrainingEngine& engine, const at::Tensor& param, const at::Tensor& own,
                  const Place& place, at::ScalarType dtype) {
  at::Tensor full = at::zeros({param.numel()}, own.options().dtype(dtype).device(engine.device()));
  if (!place.elements.empty()) full.narrow(0, place.elements.begin, place.elements.numel()).copy_(own);
  const comm::ProcessGroup& shard = engine.driver().state().parts.groups.zero.shard;
  if (engine.config().zero_optimization.stage > 0 && shard.size() > 1) shard.all_reduce(full);
  return full.view(param.sizes());
}

at::ScalarType master_dtype(const TrainingEngine& engine, const Place& place) {
  return engine.optimizer()->store().master_dtype(place.group);
}

const std::string& name_of(const TrainingEngine& engine, const Place& place) {
  return engine.optimizer()->store().groups()[place.group].params[place.index].name;
}

void check_numel(const TrainingEngine& engine, const Place& place, const at::Tensor& value, const char* whole,
                 int64_t numel) {
  if (value.defined() && value.numel() == numel) return;
  raise<UsageError>("parameter '", name_of(engine, place), "': the value has ",
                    value.defined() ? value.numel() : 0, " elements, ", whole, " has ", numel);
}

// Returns this rank's elements of the value.
at::Tensor own_elements(const at::Tensor& value, const Place& place) {
  return value.detach().reshape({-1}).narrow(0, place.elements.begin, place.elements.numel());
}

// Returns an undefined tensor before the first step.
at::Tensor find_state(const optim::SliceState& state, const std::string& key) {
  std::string known;
  for (const auto& [name, tensor] : state.tensors) {
    if (name == key) return tensor;
    known += (known.empty() ? "'" : ", '") + name + "'";
  }
  if (state.tensors.empty()) return {};
  raise<UsageError>("the optimizer has no state '", key, "'; it has ", known);
}

// Throws before the first step.
at::Tensor find_written_state(const optim::SliceState& state, const std::string& key) {
  at::Tensor found = find_state(state, key);
  if (!found.defined()) raise<UsageError>("the optimizer has no state '", key, "' before its first step");
  return found;
}

using StateTensor = std::function<at::Tensor(const zero::StateSlice&)>;

// Writes `values` to the elements `part` of what this rank owns of the group.
void set_part(TrainingEngine& engine, size_t group, const Interval& part, const at::Tensor& values,
              const StateTensor& tensor_of) {
  engine.optimizer()->state().change(group, part, [&](const zero::StateSlice& slice) {
    const at::Tensor tensor = tensor_of(slice);
    const Interval common = intersect(slice.interval, part);
    if (common.empty()) return;
    tensor.narrow(0, common.begin - slice.interval.begin, common.numel())
        .copy_(values.narrow(0, common.begin - part.begin, common.numel()));
  });
}

at::Tensor master_of(const zero::StateSlice& slice) { return slice.master; }

StateTensor state_named(const std::string& key) {
  return [key](const zero::StateSlice& slice) { return find_written_state(slice.state, key); };
}

at::Tensor reduced_gradient(const TrainingEngine& engine, const Place& place) {
  if (!engine.optimizer()->gradients().has_result()) {
    raise<UsageError>(
        "there is no reduced gradient: it is there between the backward at the accumulation "
        "boundary (and finish_backward(), after a direct loss.backward()) and step()");
  }
  return engine.optimizer()->gradient(place.group).narrow(0, place.begin, place.elements.numel());
}

// Returns this rank's sum inside of no_sync() and coalesce_grad_reduction(); otherwise undefined.
at::Tensor unreduced_gradient(const TrainingEngine& engine, const Place& place) {
  const zero::GradReducer& gradients = engine.optimizer()->gradients();
  if (!engine.driver().state().in_no_sync && !gradients.is_paused()) return {};
  return gradients.local_gradient(place.group, place.index);
}

}  // namespace

at::Tensor safe_get_full_fp32_param(const TrainingEngine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  return gather(engine, param, read_state(engine, place).master, place, master_dtype(engine, place));
}

void safe_set_full_fp32_param(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  check_numel(engine, place, value, "the parameter", param.numel());
  engine.optimizer()->state().on_all_ranks("writing the master weights", [&] {
    set_part(engine, place.group, owned_part(place), own_elements(value, place), master_of);
  });
  engine.optimizer()->state().publish_masters();
}

at::Tensor safe_get_full_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                         const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  const at::Tensor own = find_state(read_state(engine, place).state, optim_state_key);
  return own.defined() ? gather(engine, param, own, place, own.scalar_type()) : at::Tensor();
}

void safe_set_full_optimizer_state(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value,
                                   const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  check_numel(engine, place, value, "the parameter", param.numel());
  engine.optimizer()->state().on_all_ranks("writing the optimizer's state", [&] {
    set_part(engine, place.group, owned_part(place), own_elements(value, place),
             state_named(optim_state_key));
  });
}

at::Tensor safe_get_full_grad(const TrainingEngine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  if (const at::Tensor local = unreduced_gradient(engine, place); local.defined())
    return local.to(master_dtype(engine, place), /*non_blocking=*/false, /*copy=*/true);
  return gather(engine, param, reduced_gradient(engine, place), place, master_dtype(engine, place));
}

void safe_set_full_grad(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  check_numel(engine, place, value, "the parameter", param.numel());
  reduced_gradient(engine, place).copy_(own_elements(value, place));
}

void safe_update_full_grad_vectorized(
    TrainingEngine& engine, const std::vector<at::Tensor>& param_list,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& param)>& update_func) {
  if (!update_func) raise<UsageError>("update_func is empty");
  for (const at::Tensor& param : param_list) {
    safe_set_full_grad(engine, param, update_func(safe_get_full_grad(engine, param), param));
  }
}

namespace {

Place local_place_of(const TrainingEngine& engine, const at::Tensor& param, const char* what) {
  if (engine.config().zero_optimization.stage != 3) {
    raise<UsageError>("safe_get_local_", what, "() and safe_set_local_", what,
                      "() are of stage 3, which partitions parameters; at stage ",
                      engine.config().zero_optimization.stage, " call those of full_", what);
  }
  return place_of(engine, param);
}

at::Tensor local_value(const TrainingEngine& engine, const Place& place, const Interval& part,
                       const at::Tensor& value) {
  check_numel(engine, place, value, "this rank's part of it", part.numel());
  return value.detach().reshape({-1});
}

at::Tensor local_gradient(const TrainingEngine& engine, const Place& place) {
  const Interval part = local_part(engine, place);
  return reduced_gradient(engine, {place.group, place.index, {0, part.numel()}, part.begin});
}

}  // namespace

at::Tensor safe_get_local_fp32_param(const TrainingEngine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "fp32_param");
  const zero::GroupState state = engine.optimizer()->state().of(place.group, local_part(engine, place));
  return state.master.to(master_dtype(engine, place), false, /*copy=*/true);
}

void safe_set_local_fp32_param(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "fp32_param");
  const Interval part = local_part(engine, place);
  set_part(engine, place.group, part, local_value(engine, place, part, value), master_of);
  engine.optimizer()->state().publish_masters();
}

at::Tensor safe_get_local_optimizer_state(const TrainingEngine& engine, const at::Tensor& param,
                                          const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "optimizer_state");
  const zero::GroupState state = engine.optimizer()->state().of(place.group, local_part(engine, place));
  const at::Tensor own = find_state(state.state, optim_state_key);
  return own.defined() ? own.clone() : at::Tensor();
}

void safe_set_local_optimizer_state(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value,
                                    const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "optimizer_state");
  const Interval part = local_part(engine, place);
  set_part(engine, place.group, part, local_value(engine, place, part, value), state_named(optim_state_key));
}

at::Tensor safe_get_local_grad(const TrainingEngine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "grad");
  return local_gradient(engine, place).to(master_dtype(engine, place), false, /*copy=*/true);
}

void safe_set_local_grad(TrainingEngine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "grad");
  local_gradient(engine, place).copy_(local_value(engine, place, local_part(engine, place), value));
}

}  // namespace deepspeed
