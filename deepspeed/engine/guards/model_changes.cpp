#include "deepspeed/engine/guards/model_changes.h"

#include "deepspeed/base/log.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed {
namespace {

/// Formats names: 'a', or 'a' and 2 others.
std::string named_in_short(const std::vector<std::string>& names) {
  const std::string first = "'" + names.front() + "'";
  if (names.size() == 1) return "parameter " + first;
  return message("parameter ", first, " and ", names.size() - 1, names.size() == 2 ? " other" : " others");
}

}  // namespace

ModelChanges::ModelChanges(const EngineModel& model, const zero::ParamStore& store)
    : take_registered_(model.take_registered) {
  std::unordered_set<const at::TensorImpl*> trained;
  for (const zero::StoredGroup& group : store.groups()) {
    for (const NamedTensor& param : group.params) trained.insert(param.tensor.unsafeGetTensorImpl());
  }
  for (const NamedTensor& param : model.parameters) {
    const at::TensorImpl* const tensor = param.tensor.unsafeGetTensorImpl();
    seen_.insert(tensor);
    known_.push_back({param, trained.contains(tensor), param.tensor.requires_grad()});
  }
}

void ModelChanges::warn() {
  if (take_registered_) warn_of_registered();
  warn_of_flags(
      /*is_trained=*/false,
      " was unfrozen after initialize() and is not trained: the optimizer has what needed a gradient "
      "then; unfreeze before initialize(), or call destroy() and initialize() again");
  warn_of_flags(
      /*is_trained=*/true,
      " was frozen after initialize(), and the optimizer goes on moving it, by its momentum and weight "
      "decay; call destroy() and initialize() again, or give it a parameter group of its own and set "
      "its lr to 0");
}

void ModelChanges::warn_of_registered() {
  std::vector<std::string> names;
  for (const NamedTensor& param : take_registered_()) {
    if (seen_.insert(param.tensor.unsafeGetTensorImpl()).second) names.push_back(param.name);
  }
  if (names.empty()) return;
  log::warning(
      "[engine] ", named_in_short(names),
      " was registered after initialize(), as where a module is replaced, and is not trained; change "
      "the model before initialize(), or call destroy() and initialize() again");
}

void ModelChanges::warn_of_flags(bool is_trained, const char* what) {
  std::vector<std::string> names;
  for (Known& known : known_) {
    const bool is_changed = known.param.tensor.requires_grad() != known.needed_gradient;
    if (!is_changed || known.was_named || known.is_trained != is_trained) continue;
    if (!is_trained && known.needed_gradient) continue;  // was left out, and is frozen now
    known.was_named = true;
    names.push_back(known.param.name);
  }
  if (!names.empty()) log::warning("[engine] ", named_in_short(names), what);
}

}  // namespace deepspeed
