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

/// Runs a function so that its activations are computed again in backward, not kept.
using CheckpointFunction = std::function<Tensors(const TensorFunction& function, const Tensors& inputs)>;

/// A stage that a front end has built, whose layers it runs itself: between them go values of its own
/// language. Seeds and recomputation are its own, too.
struct FrontEndStage {
  Parts parts;        // as partition_layers() gives them
  EngineModel model;  // of this stage, under the front end's names
  std::function<Tensors(int chunk, const Tensors& inputs)> forward;
};

struct PipelineModuleOptions {
  /// One of both is given: how many stages, whose ranks then train data-parallel, or all axes.
  std::optional<int> num_stages = {};
  std::optional<ProcessTopology> topology = {};
  /// Says whether the slices of a layer (the ranks of the axis "model") hold parts of this parameter; else,
  /// and where it is empty, all of them hold it alike, and the first one counts it in norms.
  std::function<bool(const at::Tensor& param)> is_model_parallel_parameter = {};
  LossFunction loss_fn = {};  // none: the last layer gives the loss
  /// Called on the last stage after each micro batch's loss: losses to report beside it, by name, whose means
  /// PipelineEngine::get_additional_losses() gives.
  std::function<std::map<std::string, at::Tensor>()> additional_losses = {};
  bool seed_layers = false;                    // each layer is built and run under a seed of its own
  std::function<void(uint64_t)> seed_fn = {};  // default: torch::manual_seed
  uint64_t base_seed = 1234;
  /// "parameters", "uniform", "type:REGEX" or "profile" (partition_layers()).
  std::string partition_method = "parameters";
  /// Of so many layers, activations at their borders alone are kept; 0: all are.
  int activation_checkpoint_interval = 0;
  CheckpointFunction activation_checkpoint_func = {};  // default: as checkpointing::checkpoint does
  /// Class names, in part or whole, of the layers that may be recomputed; none: all that have parameters.
  std::vector<std::string> checkpointable_layers = {};
  /// Whether layers may give other shapes for inputs of the same shapes; those of inputs may always change.
  bool dynamic_shape = false;
  /// How many parts of the model a stage holds: above 1 for the interleaved schedule.
  int model_chunks = 1;
  /// Inputs of the first layer for partition_method "profile", which runs each layer on them.
  Tensors profile_inputs = {};
  std::optional<FrontEndStage> front_end = {};
  comm::World world = {};  // default: that of init_distributed()
};

}  // namespace deepspeed::pipe
