#include "deepspeed/checkpointing.h"

#include "deepspeed/comm/mpu.h"
#include "deepspeed/config/config.h"

namespace deepspeed::checkpointing {
namespace {

CheckpointOptions options_of_config(const config::ConfigSource& source, int64_t num_ranks) {
  const auto section = config::load_config(source, num_ranks).activation_checkpointing;
  CheckpointOptions options;
  options.partition_activations = section.partition_activations;
  options.contiguous_checkpointing = section.contiguous_memory_optimization;
  options.num_checkpoints = section.number_checkpoints;
  options.checkpoint_in_cpu = section.cpu_checkpointing;
  options.synchronize = section.synchronize_checkpoint_boundary;
  options.profile = section.profile;
  return options;
}

}  // namespace

void configure(const std::shared_ptr<Mpu>& mpu, const ConfigureOptions& options) {
  CheckpointOptions chosen;
  if (options.deepspeed_config)
    chosen = options_of_config(*options.deepspeed_config, mpu ? mpu->get_data_parallel_world_size() : 1);
  chosen.partition_activations = options.partition_activations.value_or(chosen.partition_activations);
  chosen.contiguous_checkpointing =
      options.contiguous_checkpointing.value_or(chosen.contiguous_checkpointing);
  if (options.num_checkpoints) chosen.num_checkpoints = options.num_checkpoints;
  chosen.checkpoint_in_cpu = options.checkpoint_in_cpu.value_or(chosen.checkpoint_in_cpu);
  chosen.synchronize = options.synchronize.value_or(chosen.synchronize);
  chosen.profile = options.profile.value_or(chosen.profile);
  configure(mpu ? mpu->get_tensor_model_parallel_group() : comm::ProcessGroup(), chosen);
}

}  // namespace deepspeed::checkpointing
