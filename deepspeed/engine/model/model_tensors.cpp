#include "deepspeed/engine/model/model_tensors.h"

#include <string>
#include <unordered_map>

#include <ATen/ops/empty.h>

#include "deepspeed/zero/params/set_values.h"

namespace deepspeed {

NamedTensors module_tensors(const EngineModel& model, bool exclude_frozen) {
  NamedTensors tensors;
  std::unordered_map<std::string, at::Tensor> found;
  for (const NamedTensor& param : model.parameters) {
    if (exclude_frozen && !param.tensor.requires_grad()) continue;
    const at::Tensor values = zero::is_partitioned(param.tensor)
                                  ? at::empty({0}, at::TensorOptions().dtype(param.tensor.scalar_type()))
                                  : param.tensor.detach();
    tensors.emplace_back(param.name, values);
    found.emplace(param.name, values);
  }
  for (const auto& [alias, owner] : model.shared_parameters) {
    if (const auto entry = found.find(owner); entry != found.end())
      tensors.emplace_back(alias, entry->second);
  }
  for (const NamedTensor& buffer : model.buffers) tensors.emplace_back(buffer.name, buffer.tensor.detach());
  return tensors;
}

std::vector<std::pair<const StoredLayer*, NamedTensors>> layer_tensors(const EngineModel& model,
                                                                       bool exclude_frozen) {
  std::vector<std::pair<const StoredLayer*, NamedTensors>> found;
  const auto tensors = by_name(module_tensors(model, exclude_frozen));
  for (const StoredLayer& layer : model.stored_layers) {
    if (!layer.is_written) continue;
    NamedTensors& of_layer = found.emplace_back(&layer, NamedTensors()).second;
    for (const auto& [name, in_model] : layer.names) {
      if (const auto tensor = tensors.find(in_model); tensor != tensors.end())
        of_layer.push_back({name, tensor->second});
    }
  }
  return found;
}

}  // namespace deepspeed
