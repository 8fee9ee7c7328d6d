// Holds the content of a model_states file as plain data; model_states.cpp has the file's keys. At stage 3
// each rank has such a file, with shapes and with shards of frozen parameters instead of weights.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/content/version.h"
#include "deepspeed/checkpoint/pickle/value.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::checkpoint {

using NamedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// Describes the weights: all that zero_to_fp32 needs of the file.
struct ModuleStates {
  bool has_module = true;  // false if the weights are in the files of layers
  NamedTensors module;     // parameters and buffers in the module's order and dtype, aliases included
  std::vector<std::string> buffer_names;  // which entries of `module` are buffers
  /// Lists each group's trainable parameters in the order of its flat tensor. Unset without ZeRO, except in
  /// files of this library's pipelines.
  std::optional<std::vector<NamedShapes>> param_shapes;
  std::optional<NamedShapes> frozen_param_shapes;
  std::optional<NamedTensors> frozen_param_fragments;              // whole tensors, on the CPU
  std::vector<std::pair<std::string, std::string>> shared_params;  // alias -> name of the stored weight
  std::string ds_version = kDeepSpeedVersion;
};

struct ModelStates {
  ModuleStates states;
  Value optimizer;                   // stage 0: the optimizer's own state; otherwise None
  std::optional<Json> lr_scheduler;  // its state_dict
  /// Names the weights with row-sparse gradients; unset if the file does not say.
  std::optional<std::set<std::string>> sparse_names;
  int64_t skipped_steps = 0;
  int64_t global_steps = 0;
  int64_t global_samples = 0;
  int64_t dp_world_size = 1;
  int64_t mp_world_size = 1;
  int64_t pp_degree = 1;  // pipeline stages among the model-parallel ranks
  Json ds_config = Json::object();
  Dict client_state;  // the caller's values; after reading, every key that is not DeepSpeed's
};

/// Converts named tensors to the form in a file of weights. parse_tensors() converts them back, and throws
/// CheckpointError for a value of another form.
Value build_tensors(const NamedTensors& tensors);
NamedTensors parse_tensors(const Value& value);

/// Returns the content of the model file. Throws UsageError if `client_state` uses a key of DeepSpeed's own.
Value build_model_states(const ModelStates& states);

/// Parses the content of a model file. Throws CheckpointError, naming the key that is missing or of the wrong
/// type.
ModelStates parse_model_states(const Value& value);
ModuleStates parse_module_states(const Value& value);

}  // namespace deepspeed::checkpoint
