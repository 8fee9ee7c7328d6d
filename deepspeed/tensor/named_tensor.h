// A tensor with a name: a model's parameter or buffer, or a weight in a file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Lists tensors in the order of the model or the file. Aliases of one tensor are separate entries.
using NamedTensors = std::vector<NamedTensor>;

/// Returns a map from names to tensors. If a name occurs repeatedly, its first entry is kept.
inline std::unordered_map<std::string, at::Tensor> by_name(const NamedTensors& tensors) {
  std::unordered_map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : tensors) found.emplace(name, tensor);
  return found;
}

/// Returns the number of elements of each tensor.
inline std::vector<int64_t> numels_of(const NamedTensors& tensors) {
  std::vector<int64_t> numels;
  for (const NamedTensor& named : tensors) numels.push_back(named.tensor.numel());
  return numels;
}

}  // namespace deepspeed
