#include "deepspeed/pipe/module/stage_model.h"

#include <algorithm>
#include <utility>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::pipe {
namespace {

// Adds a layer's model to the stage's, with the prefix on its names.
void add_model(EngineModel& stage, const EngineModel& layer, const std::string& prefix) {
  const auto has = [&](const at::Tensor& tensor) {
    return std::ranges::find_if(stage.parameters,
                                [&](const NamedTensor& known) { return known.tensor.is_same(tensor); });
  };
  for (const NamedTensor& param : layer.parameters) {
    const auto known = has(param.tensor);
    if (known == stage.parameters.end()) {
      stage.parameters.push_back({name_in(prefix, param.name), param.tensor});
    } else {
      stage.shared_parameters.emplace_back(name_in(prefix, param.name), known->name);
    }
  }
  for (const NamedTensor& buffer : layer.buffers)
    stage.buffers.push_back({name_in(prefix, buffer.name), buffer.tensor});
  for (const auto& [alias, owner] : layer.shared_parameters)
    stage.shared_parameters.emplace_back(name_in(prefix, alias), name_in(prefix, owner));
  stage.modules.insert(stage.modules.end(), layer.modules.begin(), layer.modules.end());
  for (ModelPart part : layer.parts) {
    part.name = part.name.empty() ? prefix : name_in(prefix, part.name);
    stage.parts.push_back(std::move(part));
  }
}

}  // namespace

EngineModel join_models(const std::vector<StageLayer>& layers) {
  EngineModel stage;
  std::vector<std::string> seen;
  std::vector<EngineModel> models;
  const auto add = [&](const StageLayer& layer) {
    if (std::ranges::find(seen, layer.prefix) != seen.end()) return;
    seen.push_back(layer.prefix);
    add_model(stage, layer.layer.model, layer.prefix);
    models.push_back(layer.layer.model);
  };
  // Tied modules come first, as in DeepSpeed; optimizer states in files follow this order.
  for (const StageLayer& layer : layers) {
    if (!layer.tied_key.empty()) add(layer);
  }
  for (const StageLayer& layer : layers) add(layer);
  stage.set_training = [models](bool training) {
    for (const EngineModel& model : models) {
      if (model.set_training) model.set_training(training);
    }
  };
  stage.take_registered = [models, seen] {
    NamedTensors found;
    for (size_t i = 0; i < models.size(); ++i) {
      if (!models[i].take_registered) continue;
      for (const NamedTensor& param : models[i].take_registered())
        found.push_back({name_in(seen[i], param.name), param.tensor});
    }
    return found;
  };
  return stage;
}

}  // namespace deepspeed::pipe
