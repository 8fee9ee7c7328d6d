#include "python/core/engine/model.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;
using Tensors = std::vector<at::Tensor>;

std::vector<NamedTensor> named_tensors(const py::handle& entries) {
  std::vector<NamedTensor> tensors;
  for (auto& [name, tensor] : entries.cast<Named>()) tensors.push_back({name, tensor});
  return tensors;
}

}  // namespace

EngineModel describe(const py::dict& model) {
  EngineModel described;
  described.parameters = named_tensors(model["parameters"]);
  described.buffers = named_tensors(model["buffers"]);
  described.shared_parameters = model["shared"].cast<std::vector<std::pair<std::string, std::string>>>();
  for (const auto& [class_name, is_embedding, tensors] :
       model["modules"].cast<std::vector<std::tuple<std::string, bool, Tensors>>>()) {
    const ModuleKind kind = is_embedding ? ModuleKind::kEmbedding : ModuleKind::kOther;
    described.modules.push_back({class_name, kind, tensors});
  }
  for (const auto& [name, class_name, tensors, below, is_leaf] :
       model["parts"].cast<std::vector<std::tuple<std::string, std::string, Tensors, int64_t, bool>>>()) {
    described.parts.push_back({name, class_name, tensors, below, is_leaf});
  }
  described.set_training = [call = hold(model["set_training"])](bool training) {
    const py::gil_scoped_acquire gil;
    (*call)(training);
  };
  described.owner = hold(model["owner"]);
  return described;
}

}  // namespace deepspeed::python
