// The process groups of a topology: DeepSpeed's PipelineParallelGrid.
#pragma once

#include <optional>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/mpu.h"
#include "deepspeed/pipe/topology/parallel_ranks.h"

namespace deepspeed {

/// Makes a group for each axis of a topology. It serves as a program's model parallel unit. In its names,
/// "model" means all of a pipeline (stages and slices). "slice" or "tensor_model" means the ranks that share
/// a layer. "pipe" or "pipeline_model" means the ranks of successive stages.
class DEEPSPEED_API PipelineParallelGrid : public ParallelRanks, public Mpu {
 public:
  /// Makes the groups. Collective over the world. topology: absent means default_topology(). world: an empty
  /// one means that of init_distributed(). Throws UsageError if topology and world differ in their number of
  /// ranks.
  explicit PipelineParallelGrid(const std::optional<ProcessTopology>& topology = {},
                                const comm::World& world = {});

  int get_global_rank() const { return global_rank(); }
  int get_stage_id() const { return stage_id(); }
  int get_data_parallel_id() const { return data_parallel_id(); }

  comm::ProcessGroup get_data_parallel_group() const override { return data_; }
  RankGroup get_data_parallel_group_ranks() const { return data_parallel_group(); }
  comm::ProcessGroup get_model_parallel_group() const override { return model_; }
  comm::ProcessGroup get_tensor_model_parallel_group() const override { return slice_; }
  comm::ProcessGroup get_slice_parallel_group() const { return slice_; }
  comm::ProcessGroup get_pipe_parallel_group() const { return pipe_; }
  comm::ProcessGroup get_pipeline_model_parallel_group() const { return pipe_; }

  int get_slice_parallel_rank() const { return slice_.rank(); }
  int get_slice_parallel_world_size() const { return slice_.size(); }
  int get_pipe_parallel_rank() const { return pipe_.rank(); }
  int get_pipe_parallel_world_size() const { return pipe_.size(); }
  int get_pipeline_model_parallel_rank() const { return pipe_.rank(); }
  int get_pipeline_model_parallel_world_size() const { return pipe_.size(); }

  /// Returns false: with a grid as the mpu, slices hold equal copies of parameters. Derived classes may
  /// decide otherwise.
  bool is_model_parallel_parameter(const at::Tensor&) const override { return false; }

 private:
  comm::ProcessGroup data_, model_, pipe_, slice_;
};

}  // namespace deepspeed
