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

struct Place {
  size_t group = 0;
  Interval in_flat;  // of the whole parameter
  Interval owned;    // of this rank, in the group's flat space
  Interval common;
};

Place place_of(const Engine& engine, const at::Tensor& param) {
  if (engine.optimizer() && param.defined()) {
    const auto& groups = engine.optimizer()->store().groups();
    for (size_t group = 0; group < groups.size(); ++group) {
      for (size_t index = 0; index < groups[group].params.size(); ++index) {
        if (!groups[group].params[index].tensor.is_same(param)) continue;
        Place place{group, groups[group].layout.place(index), engine.optimizer()->owned(group), {}};
        place.common = intersect(place.owned, place.in_flat);
        return place;
      }
    }
  }
  raise<UsageError>(kTensorAccessWhere, "the tensor is no parameter that the engine's optimizer updates");
}

at::Tensor own_part(const at::Tensor& owned, const Place& place) {
  return owned.narrow(0, place.common.begin - place.owned.begin, place.common.numel());
}

// Every element is owned by one rank (all of them at stage 0), so that the sum over ranks is the value.
at::Tensor gather(const Engine& engine, const at::Tensor& param, const at::Tensor& owned, const Place& place,
                  at::ScalarType dtype) {
  at::Tensor full = at::zeros({place.in_flat.numel()}, owned.options().dtype(dtype));
  if (!place.common.empty()) {
    full.narrow(0, place.common.begin - place.in_flat.begin, place.common.numel())
        .copy_(own_part(owned, place));
  }
  if (engine.zero_optimization() && engine.dp_world_size() > 1) engine.world().group().all_reduce(full);
  return full.view(param.sizes());
}

void scatter(const at::Tensor& param, const at::Tensor& value, const at::Tensor& owned, const Place& place) {
  if (!value.defined() || value.numel() != param.numel()) {
    raise<UsageError>(kTensorAccessWhere, "the value has ", value.defined() ? value.numel() : 0,
                      " elements, the parameter has ", param.numel());
  }
  if (place.common.empty()) return;
  own_part(owned, place)
      .copy_(value.detach().reshape({-1}).narrow(0, place.common.begin - place.in_flat.begin,
                                                 place.common.numel()));
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
  const at::Tensor owned = state_of(engine, place, optim_state_key);
  if (!owned.defined()) {
    raise<UsageError>(kTensorAccessWhere, "the optimizer has no state '", optim_state_key,
                      "' before its first step");
  }
  scatter(param, value, owned, place);
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

}  // namespace deepspeed
