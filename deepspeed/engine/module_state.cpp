// Exports and imports the model's tensors by name.
#include <unordered_map>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

using Tensors = std::unordered_map<std::string, at::Tensor>;

void check_names(const Tensors& own, const Tensors& given) {
  for (const auto& [name, tensor] : given) {
    if (own.count(name) == 0)
      raise<UsageError>("the model has no tensor '", name, "'; strict = false skips it");
  }
  for (const auto& [name, tensor] : own) {
    if (given.count(name) == 0)
      raise<UsageError>("'", name, "' is missing; strict = false leaves it as it is");
  }
}

void check_value(const std::string& name, const at::Tensor& given, const at::Tensor& own) {
  if (!given.defined() || given.is_meta() || given.is_complex() != own.is_complex()) {
    raise<UsageError>("'", name, "' is ",
                      !given.defined()  ? "undefined"
                      : given.is_meta() ? "on the meta device, which has no values"
                                        : message("of type ", given.scalar_type()),
                      ", expected values that ", own.scalar_type(), " takes");
  }
  if (given.sizes() != own.sizes()) {
    raise<UsageError>("'", name, "' has sizes ", given.sizes(), ", expected ", own.sizes());
  }
  zero::check_settable(own);
}

}  // namespace

std::vector<NamedTensor> TrainingEngine::module_state_dict(bool exclude_frozen_parameters) const {
  std::vector<NamedTensor> state;
  Tensors by_name;
  for (const NamedTensor& param : model().parameters) {
    by_name.emplace(param.name, param.tensor);
    if (!exclude_frozen_parameters || param.tensor.requires_grad())
      state.push_back({param.name, param.tensor.detach()});
  }
  for (const auto& [alias, name] : model().shared_parameters) {
    const at::Tensor& param = by_name.at(name);
    if (!exclude_frozen_parameters || param.requires_grad()) state.push_back({alias, param.detach()});
  }
  for (const NamedTensor& buffer : model().buffers) state.push_back({buffer.name, buffer.tensor.detach()});
  return state;
}

void TrainingEngine::load_module_state_dict(const std::vector<NamedTensor>& state, bool strict) {
  require_states_here("load_module_state_dict");
  Tensors own, given;
  for (const NamedTensor& tensor : module_state_dict()) own.emplace(tensor.name, tensor.tensor);
  for (const NamedTensor& tensor : state) given.emplace(tensor.name, tensor.tensor);
  if (strict) check_names(own, given);
  for (const auto& [name, tensor] : given) {
    const auto place = own.find(name);
    if (place != own.end()) check_value(name, tensor, place->second);
  }
  if (optimizer()) optimizer()->state().check_no_step_has_begun();
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : given) {
    const auto place = own.find(name);
    if (place != own.end()) zero::set_values(place->second, tensor);
  }
  if (optimizer()) optimizer()->state().restore_masters_from_model();
}

}  // namespace deepspeed
