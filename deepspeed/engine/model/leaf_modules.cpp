// Makes modules leaves.
//
// Marks are stored by the module's address, outside of it, as long as the module exists. initialize() calls
// join_leaf_modules(), which visits the model's parts from the outside in. It takes those that are marked,
// named by the config, or too fine-grained, but skips parts inside of a leaf. The partitioned parameters of
// each leaf become one unit of the pool. Config names that matched nothing are warned of at the end.
#include "deepspeed/engine/model/leaf_modules.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <torch/nn/module.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/engine/model/leaf_units.h"

namespace deepspeed {
namespace {

// Marks are kept here because torch::nn::Module has no field for them.
struct LeafMarks {
  std::mutex mutex;
  std::unordered_map<const torch::nn::Module*, std::weak_ptr<torch::nn::Module>> modules;
};

LeafMarks& leaf_marks() {
  static LeafMarks marks;
  return marks;
}

bool is_of_class(const std::string& class_name, const std::string& wanted) {
  return class_name == wanted || class_name.ends_with("::" + wanted) || class_name.ends_with("." + wanted);
}

bool is_named(const std::string& name, const std::string& wanted) { return name == wanted; }

bool ends_in(const std::string& name, const std::string& suffix) { return name.ends_with(suffix); }

using Fits = bool (*)(const std::string& given, const std::string& wanted);

bool fits_any(Fits fits, const std::string& given, const std::vector<std::string>& wanted) {
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& one) { return fits(given, one); });
}

void require_model(const ModulePtr& model) {
  if (!model) raise<UsageError>("the model is null");
}

ModulePtrs mark_all(const ModulePtr& model, const char* what, Fits fits,
                    const std::vector<std::string>& wanted, bool is_leaf) {
  require_model(model);
  ModulePtrs found;
  for (const auto& entry : model->named_modules()) {
    const std::string given = fits == &is_of_class ? entry.value()->name() : entry.key();
    if (fits_any(fits, given, wanted)) found.push_back(entry.value());
  }
  if (found.empty()) {
    std::string names;
    for (const std::string& one : wanted) names += (names.empty() ? "'" : ", '") + one + "'";
    raise<UsageError>("the model has no module of ", what, " ", names.empty() ? "none" : names);
  }
  for (const ModulePtr& module : found) set_z3_leaf_module(module, is_leaf);
  return found;
}

bool is_inside(const std::string& name, const std::string& outer) {
  return outer.empty() || name.starts_with(outer + ".");
}

/// Decides whether the config makes a module a leaf.
class ConfiguredLeaves {
 public:
  explicit ConfiguredLeaves(const config::ZeroConfig& zero) : zero_(zero) {}

  bool has(const ModelPart& part) {
    const config::LeafModuleConfig& leaf = zero_.leaf_module;
    // All three must be called, since each records what it has found.
    const bool has_class = find(&is_of_class, part.class_name, leaf.classes);
    const bool has_name = find(&is_named, part.name, leaf.names);
    const bool has_suffix = find(&ends_in, part.name, leaf.name_suffixes);
    return has_class || has_name || has_suffix || is_fine_grained(part);
  }

  void warn_of_missing() const {
    const config::LeafModuleConfig& leaf = zero_.leaf_module;
    for (const auto* wanted : {&leaf.classes, &leaf.names, &leaf.name_suffixes}) {
      for (const std::string& one : *wanted) {
        if (!found_.contains(&one)) {
          log::warning("[config] without effect: zero_optimization.leaf_module: the model has no module '",
                       one, "'");
        }
      }
    }
  }

 private:
  bool find(Fits fits, const std::string& given, const std::vector<std::string>& wanted) {
    bool is_found = false;
    for (const std::string& one : wanted) {
      if (!fits(given, one)) continue;
      found_[&one] = true;
      is_found = true;
    }
    return is_found;
  }

  bool is_fine_grained(const ModelPart& part) const {
    int64_t numel = 0;
    for (const at::Tensor& parameter : part.parameters) numel += parameter.numel();
    return numel > 0 && numel / (1 + part.num_descendants) < zero_.stage3_module_granularity_threshold;
  }

  const config::ZeroConfig& zero_;
  std::unordered_map<const std::string*, bool> found_;
};

}  // namespace

ModulePtrs set_z3_leaf_modules(const ModulePtr& model, const std::vector<std::string>& classes) {
  return mark_all(model, "class", &is_of_class, classes, true);
}
ModulePtrs set_z3_leaf_modules_by_name(const ModulePtr& model, const std::vector<std::string>& names) {
  return mark_all(model, "name", &is_named, names, true);
}
ModulePtrs set_z3_leaf_modules_by_suffix(const ModulePtr& model, const std::vector<std::string>& suffixes) {
  return mark_all(model, "a name that ends in", &ends_in, suffixes, true);
}
ModulePtrs unset_z3_leaf_modules(const ModulePtr& model, const std::vector<std::string>& classes) {
  return mark_all(model, "class", &is_of_class, classes, false);
}
ModulePtrs unset_z3_leaf_modules_by_name(const ModulePtr& model, const std::vector<std::string>& names) {
  return mark_all(model, "name", &is_named, names, false);
}
ModulePtrs unset_z3_leaf_modules_by_suffix(const ModulePtr& model, const std::vector<std::string>& suffixes) {
  return mark_all(model, "a name that ends in", &ends_in, suffixes, false);
}

ModulePtrs get_z3_leaf_modules(const ModulePtr& model) {
  require_model(model);
  ModulePtrs found = model->modules(/*include_self=*/true);
  std::erase_if(found, [](const ModulePtr& module) { return !z3_leaf_module(module); });
  return found;
}

void set_z3_leaf_module(const ModulePtr& module, bool is_leaf) {
  require_model(module);
  LeafMarks& marks = leaf_marks();
  const std::lock_guard lock(marks.mutex);
  std::erase_if(marks.modules, [](const auto& mark) { return mark.second.expired(); });
  if (is_leaf) {
    marks.modules[module.get()] = module;
  } else {
    marks.modules.erase(module.get());
  }
}

bool z3_leaf_module(const ModulePtr& module) {
  LeafMarks& marks = leaf_marks();
  const std::lock_guard lock(marks.mutex);
  const auto mark = marks.modules.find(module.get());
  return mark != marks.modules.end() && mark->second.lock() == module;
}

bool z3_leaf_parameter(const at::Tensor& parameter) {
  LeafMarks& marks = leaf_marks();
  const std::lock_guard lock(marks.mutex);
  for (const auto& mark : marks.modules) {
    const ModulePtr module = mark.second.lock();
    if (!module) continue;
    for (const at::Tensor& own : module->parameters(/*recurse=*/true)) {
      if (own.is_same(parameter)) return true;
    }
  }
  return false;
}

zero::ParamUnits join_leaf_modules(const EngineModel& model, const config::ZeroConfig& zero,
                                   zero::GatherPool& pool) {
  ConfiguredLeaves configured(zero);
  zero::ParamUnits units;
  const ModelPart* outermost = nullptr;
  for (const ModelPart& part : model.parts) {
    const bool is_leaf = configured.has(part) || part.is_leaf;
    if (!is_leaf || (outermost != nullptr && is_inside(part.name, outermost->name))) continue;
    outermost = &part;
    std::vector<std::shared_ptr<zero::PartitionedStorage>> members;
    for (const at::Tensor& parameter : part.parameters) {
      auto storage = zero::partitioned_storage_of(parameter);
      const bool is_new = std::find(members.begin(), members.end(), storage) == members.end();
      if (storage && is_new) members.push_back(std::move(storage));
    }
    if (members.empty()) continue;
    const size_t unit = pool.join(message("leaf module '", part.name, "'"), members);
    for (const at::Tensor& parameter : part.parameters) units[parameter.unsafeGetTensorImpl()] = unit;
  }
  configured.warn_of_missing();
  return units;
}

}  // namespace deepspeed
