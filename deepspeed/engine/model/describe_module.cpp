#include "deepspeed/engine/model/describe_module.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/model/leaf_modules.h"
#include "deepspeed/zero/params/named_parameters.h"

namespace deepspeed {
namespace {

ModuleKind kind_of(const torch::nn::Module& module) {
  const std::string name = module.name();
  const bool is_embedding = name == "torch::nn::EmbeddingImpl" || name == "torch::nn::EmbeddingBagImpl";
  return is_embedding ? ModuleKind::kEmbedding : ModuleKind::kOther;
}

// Reads the protected table directly: named_parameters() builds strings and tables, too slow for every step.
struct OpenModule : torch::nn::Module {
  static const auto& parameters_of(const torch::nn::Module& module) {
    return module.*(&OpenModule::parameters_);
  }
};

template <class Visit>
void visit_parameters(const torch::nn::Module& module, const Visit& visit) {
  for (const auto& entry : OpenModule::parameters_of(module)) visit(entry.value().unsafeGetTensorImpl());
  for (const auto& child : module.children()) visit_parameters(*child, visit);
}

/// Remembers which parameters a module and its children have registered, to notice changes.
class RegisteredTensors {
 public:
  explicit RegisteredTensors(const torch::nn::Module& module) { take_change(module); }

  /// Returns whether the parameters have changed since the last call or since construction. Costs some ten
  /// nanoseconds per module.
  bool take_change(const torch::nn::Module& module) {
    size_t count = 0;
    bool is_same = true;
    visit_parameters(module, [&](const at::TensorImpl* tensor) {
      is_same = is_same && count < seen_.size() && seen_[count] == tensor;
      ++count;
    });
    if (is_same && count == seen_.size()) return false;
    seen_.clear();
    visit_parameters(module, [&](const at::TensorImpl* tensor) { seen_.push_back(tensor); });
    return true;
  }

 private:
  std::vector<const at::TensorImpl*> seen_;  // parameters, outer modules first
};

}  // namespace

EngineModel describe_module(const std::shared_ptr<torch::nn::Module>& module) {
  if (!module) raise<UsageError>("the model is null; pass a shared_ptr to a torch::nn::Module");
  EngineModel model;
  std::unordered_map<const at::TensorImpl*, std::string> first_names;
  for (const auto& entry : module->named_parameters(/*recurse=*/true)) {
    if (!entry.value().defined())
      continue;  // registered without a tensor, such as the bias of a layer without one
    const auto [place, is_new] = first_names.emplace(entry.value().unsafeGetTensorImpl(), entry.key());
    if (is_new) {
      model.parameters.push_back({entry.key(), entry.value()});
    } else {
      model.shared_parameters.emplace_back(entry.key(), place->second);
    }
  }
  for (const auto& entry : module->named_buffers(/*recurse=*/true)) {
    if (entry.value().defined()) model.buffers.push_back({entry.key(), entry.value()});
  }
  for (const auto& part : module->modules(/*include_self=*/true)) {
    ModuleParameters own{part->name(), kind_of(*part), {}};
    for (const at::Tensor& parameter : part->parameters(/*recurse=*/false)) {
      if (parameter.defined()) own.parameters.push_back(parameter);
    }
    if (!own.parameters.empty()) model.modules.push_back(std::move(own));
  }
  for (const auto& entry : module->named_modules()) {
    const auto& part = entry.value();
    ModelPart described{entry.key(), part->name(), {}, 0, z3_leaf_module(part)};
    described.num_descendants = static_cast<int64_t>(part->modules(/*include_self=*/false).size());
    for (const at::Tensor& parameter : part->parameters(/*recurse=*/true)) {
      if (parameter.defined()) described.parameters.push_back(parameter);
    }
    model.parts.push_back(std::move(described));
  }
  model.take_registered = [raw = module.get(), seen = RegisteredTensors(*module)]() mutable {
    return seen.take_change(*raw) ? zero::named_parameters(*raw) : std::vector<NamedTensor>();
  };
  model.set_training = [raw = module.get()](bool training) { raw->train(training); };
  model.owner = module;
  return model;
}

}  // namespace deepspeed
