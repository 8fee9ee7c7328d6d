// The engine sees a model as named tensors and a switch to training mode. It does not know the model's class.
// Both torch::nn::Module and models of other front ends can be described this way.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Classifies modules that the engine treats specially, independent of the front end.
enum class ModuleKind {
  kOther,
  kEmbedding  // few rows are used per step; sparse_gradients sends only those
};

/// Holds a module's own parameters, without its children's.
struct ModuleParameters {
  std::string class_name;  // as its language spells it: torch::nn::LinearImpl, torch.nn.Linear
  ModuleKind kind = ModuleKind::kOther;
  std::vector<at::Tensor> parameters;
};

/// Describes a module together with everything below it.
struct ModelPart {
  std::string name;        // "h.0.mlp"; "" is the model itself
  std::string class_name;  // as in ModuleParameters
  std::vector<at::Tensor> parameters;
  int64_t num_descendants = 0;
  bool is_leaf = false;  // marked by set_z3_leaf_modules()
};

/// Describes a pipeline layer, whose weights checkpoints keep in a file of their own.
struct StoredLayer {
  int index = 0;      // in the pipeline
  std::string slice;  // slice of the layer if ranks divide layers: "model_00"
  std::vector<std::pair<std::string, std::string>>
      names;               // of tensors: (name in the file, name in the model)
  bool is_written = true;  // false: another stage that shares the weights writes it
};

/// Says which checkpoint file has the weights of a pipeline layer, on any stage.
struct LayerWeights {
  std::string prefix;    // of its parameters' names: "3", "tied_modules.embed"
  bool is_tied = false;  // layers with equal prefixes share a module
  int stored_as = 0;     // the layer whose file has the weights
};

struct DEEPSPEED_API EngineModel {
  std::vector<NamedTensor> parameters;  // each tensor once, under its first name, in registration order
  std::vector<NamedTensor> buffers;
  std::vector<std::pair<std::string, std::string>> shared_parameters;  // (alias, first name)
  std::vector<ModuleParameters> modules;
  std::vector<ModelPart> parts;  // from the outside in
  /// Lists parameters shared with a rank that has another part of the model. That rank counts them in the
  /// gradient norm.
  std::vector<at::Tensor> counted_elsewhere;
  /// Lists parameters that all ranks dividing their layer hold whole. The first of those ranks counts them in
  /// the gradient norm.
  std::vector<NamedTensor> alike_on_slices;
  /// Lists the files that hold a pipeline stage. Empty for other models.
  std::vector<StoredLayer> stored_layers;
  std::vector<LayerWeights> layers;  // of all stages of a pipeline
  std::function<void(bool training)> set_training;
  /// Returns the model's named parameters if the module's parameters have changed since the last call;
  /// otherwise an empty list. null: changes cannot be detected.
  std::function<std::vector<NamedTensor>()> take_registered;
  std::shared_ptr<void> owner;  // keeps the model alive

  /// Returns the device of the parameters; the CPU if there are none.
  at::Device device() const { return parameters.empty() ? at::kCPU : parameters.front().tensor.device(); }
};

}  // namespace deepspeed
