// A tensor under a name: a parameter or a buffer of a model, or a weight of a file.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Tensors in the order of the model or the file; aliases of one tensor are entries of their own.
using NamedTensors = std::vector<NamedTensor>;

/// Makes a map by name; the first of several entries with one name stays.
inline std::unordered_map<std::string, at::Tensor> by_name(const NamedTensors& tensors) {
  std::unordered_map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : tensors) found.emplace(name, tensor);
  return found;
}

}  // namespace deepspeed
