// The engine knows of a model its named tensors and a switch, not its class. A torch::nn::Module becomes one;
// a model of another front end can as well.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {

/// Says what the engine has to know of a module's class, whatever the front end calls it.
enum class ModuleKind {
  kOther,
  kEmbedding  // a step uses few rows of its weight, whose gradients sparse_gradients sends alone
};

/// Holds a module's own parameters, without its children's.
struct ModuleParameters {
  std::string class_name;  // as its language spells it: torch::nn::LinearImpl, torch.nn.Linear
  ModuleKind kind = ModuleKind::kOther;
  std::vector<at::Tensor> parameters;
};

/// Describes a module with all that is below it.
struct ModelPart {
  std::string name;        // "h.0.mlp"; "" is the model itself
  std::string class_name;  // as ModuleParameters
  std::vector<at::Tensor> parameters;
  int64_t num_descendants = 0;
  bool is_leaf = false;  // marked by set_z3_leaf_modules()
};

/// A layer of a pipeline, whose weights checkpoints have in a file of their own.
struct StoredLayer {
  int index = 0;                                           // in the pipeline
  std::string slice;                                       // of it, where ranks cut layers: "model_00"
  std::vector<std::pair<std::string, std::string>> names;  // of tensors: in the file, in the model
  bool is_written = true;  // false: by another stage, which shares the weights
};

/// Says of a layer of a pipeline, whichever stage has it, where checkpoints have its weights.
struct LayerWeights {
  std::string prefix;    // of its parameters' names: "3", "tied_modules.embed"
  bool is_tied = false;  // layers of one prefix share a module
  int stored_as = 0;     // the layer whose file has them
};

struct DEEPSPEED_API EngineModel {
  std::vector<NamedTensor> parameters;  // each tensor once, under its first name, in order of registration
  std::vector<NamedTensor> buffers;
  std::vector<std::pair<std::string, std::string>> shared_parameters;  // (alias, first name)
  std::vector<ModuleParameters> modules;
  std::vector<ModelPart> parts;  // from the outside in
  /// Parameters of which a rank that holds another part of the model has a copy: it counts them in the norm.
  std::vector<at::Tensor> counted_elsewhere;
  /// Parameters that all slices of their layer hold alike, where ranks share layers out. The first slice
  /// counts them in the norm.
  std::vector<NamedTensor> alike_on_slices;
  /// Lists the files that hold a stage of a pipeline in place of the model as a whole; empty for others.
  std::vector<StoredLayer> stored_layers;
  std::vector<LayerWeights> layers;  // of all stages of a pipeline
  std::function<void(bool training)> set_training;
  /// Returns the model's parameters by name, where others are registered than at the last call, else none;
  /// null: nobody knows.
  std::function<std::vector<NamedTensor>()> take_registered;
  std::shared_ptr<void> owner;  // keeps the model alive

  /// Returns the device of the parameters, the CPU where there are none.
  at::Device device() const { return parameters.empty() ? at::kCPU : parameters.front().tensor.device(); }
};

/// Returns the parameters and buffers of a module and of its children.
DEEPSPEED_API EngineModel describe_module(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace deepspeed
