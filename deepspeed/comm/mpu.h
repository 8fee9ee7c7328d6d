// Describes to initialize() a program's own parallelism, like DeepSpeed's model parallel unit.
#pragma once

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed {

/// Provides the groups of a program that splits a model over ranks. An example is tensor parallelism.
/// Gradients are averaged over the data-parallel group only. Norms and overflows combine the parts of the
/// model-parallel group, and checkpoints have files for each part. The engine makes its own groups of these
/// ranks.
class DEEPSPEED_API Mpu {
 public:
  virtual ~Mpu() = default;
  /// Returns the ranks that train the same part of the model on different data.
  virtual comm::ProcessGroup get_data_parallel_group() const = 0;
  /// Returns the ranks that together hold one copy of the model.
  virtual comm::ProcessGroup get_model_parallel_group() const = 0;
  /// Returns the ranks that split the same layers and get the same activations. By default these are all
  /// ranks of the model-parallel group; override this if some of them hold other layers.
  virtual comm::ProcessGroup get_tensor_model_parallel_group() const { return get_model_parallel_group(); }
  /// Returns whether the tensor-parallel group splits this parameter; the norm then adds up its parts.
  /// Otherwise all ranks of that group must hold the same values, and the norm counts only those of its first
  /// rank.
  virtual bool is_model_parallel_parameter(const at::Tensor& param) const = 0;

  int get_data_parallel_rank() const { return get_data_parallel_group().rank(); }
  int get_data_parallel_world_size() const { return get_data_parallel_group().size(); }
  int get_model_parallel_rank() const { return get_model_parallel_group().rank(); }
  int get_model_parallel_world_size() const { return get_model_parallel_group().size(); }
  int get_tensor_model_parallel_rank() const { return get_tensor_model_parallel_group().rank(); }
  int get_tensor_model_parallel_world_size() const { return get_tensor_model_parallel_group().size(); }
};

}  // namespace deepspeed
