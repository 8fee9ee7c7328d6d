// What a program with parallelism of its own tells initialize(): DeepSpeed's model parallel unit.
#pragma once

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed {

/// Knows the groups of a program whose ranks share out a model, over tensors for instance. Gradients are
/// averaged over the data-parallel group alone, norms and overflows are those of the model-parallel group's
/// parts together, and checkpoints have files of each part. The engine makes groups of its own of these
/// ranks.
class DEEPSPEED_API Mpu {
 public:
  virtual ~Mpu() = default;
  /// Returns the ranks that hold the same parts and train them on other data.
  virtual comm::ProcessGroup get_data_parallel_group() const = 0;
  /// Returns the ranks that hold one copy of the model together.
  virtual comm::ProcessGroup get_model_parallel_group() const = 0;
  /// Returns those of them that share layers out, which get the same activations: all, unless some hold other
  /// layers.
  virtual comm::ProcessGroup get_tensor_model_parallel_group() const { return get_model_parallel_group(); }
  /// Says whether the slices of a layer, the tensor-parallel group, hold parts of this parameter, which the
  /// norm adds up. Else all of them must hold it alike, and the first one counts it.
  virtual bool is_model_parallel_parameter(const at::Tensor& param) const = 0;

  int get_data_parallel_rank() const { return get_data_parallel_group().rank(); }
  int get_data_parallel_world_size() const { return get_data_parallel_group().size(); }
  int get_model_parallel_rank() const { return get_model_parallel_group().rank(); }
  int get_model_parallel_world_size() const { return get_model_parallel_group().size(); }
  int get_tensor_model_parallel_rank() const { return get_tensor_model_parallel_group().rank(); }
  int get_tensor_model_parallel_world_size() const { return get_tensor_model_parallel_group().size(); }
};

}  // namespace deepspeed
