#include "deepspeed/zero/params/named_parameters.h"

#include <unordered_set>

#include <torch/nn/module.h>

namespace deepspeed::zero {

std::vector<NamedTensor> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> params;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& entry : module.named_parameters(/*recurse=*/true)) {
    if (!entry.value().defined()) continue;  // registered without a tensor, such as a missing bias
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second)
      params.push_back({entry.key(), entry.value()});
  }
  return params;
}

}  // namespace deepspeed::zero
