#include "deepspeed/engine/tensor_access.h"

#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/engine.h"

namespace deepspeed {
namespace {

constexpr const char* kTensorAccessWhere = "engine.tensor_access";

// Which elements of a parameter this rank owns, and where they begin in what it owns of the group.
struct Place {
  size_t group = 0;
  size_t index = 0;
  Interval elements;
  int64_t begin = 0;
};

Place place_in(const zero::ZeroOptimizer& optimizer, size_t group, size_t index) {
  if (const zero::ShardLayout* shards = optimizer.store().shards(group))
    return {group, index, shards->elements(index, optimizer.group().rank()), shards->place(index).begin};
  const Interval in_flat = optimizer.store().groups()[group].layout.place(index);
  const Interval owned = optimizer.owned(group);
  const Interval common = intersect(owned, in_flat);
  if (common.empty()) return {group, index, {}, 0};
  return {
      group, index, {common.begin - in_flat.begin, common.end - in_flat.begin}, common.begin - owned.begin};
}

Place place_of(const Engine& engine, const at::Tensor& param) {
  if (engine.optimizer() && param.defined()) {
    const auto& groups = engine.optimizer()->store().groups();
    for (size_t group = 0; group < groups.size(); ++group) {
      for (size_t index = 0; index < groups[group].params.size(); ++index) {
        if (groups[group].params[index].tensor.is_same(param))
          return place_in(*engine.optimizer(), group, index);
      }
    }
  }
  raise<UsageError>(kTensorAccessWhere, "the tensor is no parameter that the engine's optimizer updates");
}

at::Tensor own_part(const at::Tensor& owned, const Place& place) {
  return owned.narrow(0, place.begin, place.elements.numel());
}

// Every element is owned by one rank (all of them at stage 0), so that the sum over ranks is the value.
at::Tensor gather(const Engine& engine, const at::Tensor& param, const at::Tensor& owned, const Place& place,
                  at::ScalarType dtype) {
  at::Tensor full = at::zeros({param.numel()}, owned.options().dtype(dtype));
  if (!place.elements.empty())
    full.narrow(0, place.elements.begin, place.elements.numel()).copy_(own_part(owned, place));
  if (engine.zero_optimization() && engine.dp_world_size() > 1) engine.world().group().all_reduce(full);
  return full.view(param.sizes());
}

void scatter(const at::Tensor& param, const at::Tensor& value, const at::Tensor& owned, const Place& place) {
  if (!value.defined() || value.numel() != param.numel()) {
    raise<UsageError>(kTensorAccessWhere, "the value has ", value.defined() ? value.numel() : 0,
                      " elements, the parameter has ", param.numel());
  }
  if (place.elements.empty()) return;
  own_part(owned, place)
      .copy_(value.detach().reshape({-1}).narrow(0, place.elements.begin, place.elements.numel()));
}

// Undefined before the first step.
at::Tensor state_of(const Engine& engine, const Place& place, const std::string& key) {
  const auto state = std::as_const(*engine.optimizer()).base_optimizer().state(place.group);
  std::string known;
  for (const auto& [name, tensor] : state.tensors) {
    if (name == key) return tensor;
    known += (known.empty() ? "'" : ", '") + name + "'";
  }
  if (state.tensors.empty()) return {};
  raise<UsageError>(kTensorAccessWhere, "the optimizer has no state '", key, "'; it has ", known);
}

// Throws before the first step.
at::Tensor written_state_of(const Engine& engine, const Place& place, const std::string& key) {
  at::Tensor state = state_of(engine, place, key);
  if (!state.defined())
    raise<UsageError>(kTensorAccessWhere, "the optimizer has no state '", key, "' before its first step");
  return state;
}

at::Tensor reduced_gradient(const Engine& engine, const Place& place) {
  if (!engine.optimizer()->has_gradients()) {
    raise<UsageError>(kTensorAccessWhere,
                      "there is no reduced gradient: it is there between the backward at the accumulation "
                      "boundary (and finish_backward(), after a direct loss.backward()) and step()");
  }
  return engine.optimizer()->gradient(place.group);
}

}  // namespace

at::Tensor safe_get_full_fp32_param(const Engine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  return gather(engine, param, engine.optimizer()->master(place.group), place, at::kFloat);
}

void safe_set_full_fp32_param(Engine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  scatter(param, value, engine.optimizer()->master(place.group), place);
  engine.optimizer()->publish_masters();
}

at::Tensor safe_get_full_optimizer_state(const Engine& engine, const at::Tensor& param,
                                         const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  const at::Tensor owned = state_of(engine, place, optim_state_key);
  return owned.defined() ? gather(engine, param, owned, place, owned.scalar_type()) : at::Tensor();
}

void safe_set_full_optimizer_state(Engine& engine, const at::Tensor& param, const at::Tensor& value,
                                   const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  scatter(param, value, written_state_of(engine, place, optim_state_key), place);
}

at::Tensor safe_get_full_grad(const Engine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  return gather(engine, param, reduced_gradient(engine, place), place, at::kFloat);
}

void safe_set_full_grad(Engine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = place_of(engine, param);
  scatter(param, value, reduced_gradient(engine, place), place);
}

void safe_update_full_grad_vectorized(
    Engine& engine, const std::vector<at::Tensor>& param_list,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& param)>& update_func) {
  if (!update_func) raise<UsageError>(kTensorAccessWhere, "update_func is empty");
  for (const at::Tensor& param : param_list) {
    safe_set_full_grad(engine, param, update_func(safe_get_full_grad(engine, param), param));
  }
}

namespace {

// Of a state of the group, what this rank holds of the parameter at stage 3, padding included.
at::Tensor local_part(const Engine& engine, const at::Tensor& owned, const Place& place) {
  const Interval in_flat = engine.optimizer()->store().shards(place.group)->place(place.index);
  return owned.narrow(0, in_flat.begin, in_flat.numel());
}

Place local_place_of(const Engine& engine, const at::Tensor& param, const char* what) {
  if (engine.zero_optimization_stage() != 3) {
    raise<UsageError>(kTensorAccessWhere, "safe_get_local_", what, "() and safe_set_local_", what,
                      "() are of stage 3, which partitions parameters; at stage ",
                      engine.zero_optimization_stage(), " call those of full_", what);
  }
  return place_of(engine, param);
}

void set_local_part(const at::Tensor& part, const at::Tensor& value) {
  if (!value.defined() || value.numel() != part.numel()) {
    raise<UsageError>(kTensorAccessWhere, "the value has ", value.defined() ? value.numel() : 0,
                      " elements, this rank's part of the parameter has ", part.numel());
  }
  part.copy_(value.detach().reshape({-1}));
}

}  // namespace

at::Tensor safe_get_local_fp32_param(const Engine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "fp32_param");
  return local_part(engine, engine.optimizer()->master(place.group), place).to(at::kFloat, false, true);
}

void safe_set_local_fp32_param(Engine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "fp32_param");
  set_local_part(local_part(engine, engine.optimizer()->master(place.group), place), value);
  engine.optimizer()->publish_masters();
}

at::Tensor safe_get_local_optimizer_state(const Engine& engine, const at::Tensor& param,
                                          const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "optimizer_state");
  const at::Tensor owned = state_of(engine, place, optim_state_key);
  return owned.defined() ? local_part(engine, owned, place).clone() : at::Tensor();
}

void safe_set_local_optimizer_state(Engine& engine, const at::Tensor& param, const at::Tensor& value,
                                    const std::string& optim_state_key) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "optimizer_state");
  set_local_part(local_part(engine, written_state_of(engine, place, optim_state_key), place), value);
}

at::Tensor safe_get_local_grad(const Engine& engine, const at::Tensor& param) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "grad");
  return local_part(engine, reduced_gradient(engine, place), place).to(at::kFloat, false, true);
}

void safe_set_local_grad(Engine& engine, const at::Tensor& param, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const Place place = local_place_of(engine, param, "grad");
  set_local_part(local_part(engine, reduced_gradient(engine, place), place), value);
}

}  // namespace deepspeed
