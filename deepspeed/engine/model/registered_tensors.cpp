#include "deepspeed/engine/model/registered_tensors.h"

#include <torch/nn/module.h>

namespace deepspeed {
namespace {

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

}  // namespace

RegisteredTensors::RegisteredTensors(const torch::nn::Module& module) { take_change(module); }

bool RegisteredTensors::take_change(const torch::nn::Module& module) {
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

}  // namespace deepspeed
