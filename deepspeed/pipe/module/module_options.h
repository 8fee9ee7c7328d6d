// The arguments of PipelineModule.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/pipe/module/layer.h"
#include "deepspeed/pipe/module/loss_function.h"
#include "deepspeed/pipe/module/partition_layers.h"
#include "deepspeed/pipe/topology/process_topology.h"

namespace deepspeed::pipe {

/// Runs a function so that its activations are recomputed in backward instead of kept.
using CheckpointFunction = std::function<Tensors(const TensorFunction& function, const Tensors& inputs)>;

/// Holds a stage whose layers a front end builds and runs. The front end passes values of its own language
/// between layers, and handles seeds and recomputation.
struct FrontEndStage {
  Parts parts;        // as partition_layers() returns them
  EngineModel model;  // of this stage, under the front end's names
  std::function<Tensors(int chunk, const Tensors& inputs)> forward;
};

struct PipelineModuleOptions {
  /// Number of stages; each stage's ranks train data-parallel. Give either this or `topology`.
  std::optional<int> num_stages = {};
  std::optional<ProcessTopology> topology = {};
  /// Returns whether the slices of a layer hold different parts of this parameter. Slices are the ranks of
  /// the axis "model". If the result is false, or without this function, all slices hold equal copies, and
  /// norms count only the first slice's.
  std::function<bool(const at::Tensor& param)> is_model_parallel_parameter = {};
  LossFunction loss_fn = {};  // absent: the last layer returns the loss
  /// Returns further losses to report, by name. It is called on the last stage after each micro batch's loss.
  /// PipelineEngine::get_additional_losses() returns their means.
  std::function<std::map<std::string, at::Tensor>()> additional_losses = {};
  bool seed_layers = false;                    // each layer is built and run under its own seed
  std::function<void(uint64_t)> seed_fn = {};  // default: torch::manual_seed
  uint64_t base_seed = 1234;
  /// "parameters", "uniform", "type:REGEX" or "profile" (see partition_layers()).
  std::string partition_method = "parameters";
  /// Recomputes layers in blocks of this many, keeping only block inputs; 0 keeps everything.
  int activation_checkpoint_interval = 0;
  CheckpointFunction activation_checkpoint_func = {};  // default: checkpointing::checkpoint
  /// Class names, or parts of them, of layers that may be recomputed. Empty: all with parameters.
  std::vector<std::string> checkpointable_layers = {};
  /// Whether layers may return different shapes for inputs of equal shapes. Input shapes may always change.
  bool dynamic_shape = false;
  /// How many parts of the model a stage holds; above 1 for the interleaved schedule.
  int model_chunks = 1;
  /// Inputs of the first layer for partition_method "profile", which runs the layers on them.
  Tensors profile_inputs = {};
  std::optional<FrontEndStage> front_end = {};
  comm::World world = {};  // default: that of init_distributed()
};

}  // namespace deepspeed::pipe
