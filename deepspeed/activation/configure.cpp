#include "deepspeed/activation/configure.h"

#include <mutex>
#include <utility>

#include "deepspeed/activation/region_inputs.h"
#include "deepspeed/base/error.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/ranks/mpu.h"

namespace deepspeed::checkpointing {
namespace {

struct Current {
  std::mutex mutex;
  bool is_configured = false;
  std::shared_ptr<const Keeping> keeping = std::make_shared<Keeping>();
};

Current& current() {
  static Current instance;
  return instance;
}

// Sets what is checked; buffers are made anew.
void set(Keeping keeping) {
  const CheckpointOptions& options = keeping.options;
  if (options.contiguous_checkpointing && !options.partition_activations) {
    raise<UsageError>(
        "contiguous_checkpointing is only available with partitioned activations: set partition_activations "
        "to "
        "true in the config's activation_checkpointing or in configure()");
  }
  if (options.contiguous_checkpointing && !options.num_checkpoints) {
    raise<UsageError>(
        "contiguous_checkpointing needs num_checkpoints, the number of layers of a forward: "
        "activation_checkpointing.number_checkpoints in the config");
  }
  if (options.num_checkpoints && *options.num_checkpoints < 1)
    raise<UsageError>("num_checkpoints is ", *options.num_checkpoints, ", expected 1 or more");
  keeping.buffers.reset();
  if (options.contiguous_checkpointing)
    keeping.buffers = std::make_shared<ContiguousBuffers>(*options.num_checkpoints);
  const std::lock_guard lock(current().mutex);
  current().keeping = std::make_shared<Keeping>(std::move(keeping));
}

CheckpointOptions of_config(const config::ConfigSource& source, int64_t num_ranks) {
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

Keeping copy_of_current() {
  const std::lock_guard lock(current().mutex);
  return *current().keeping;
}

}  // namespace

void configure(const std::shared_ptr<Mpu>& mpu, const ConfigureOptions& options) {
  Keeping keeping;
  if (mpu) keeping.model_group = mpu->get_model_parallel_group();
  if (options.deepspeed_config)
    keeping.options = of_config(*options.deepspeed_config, mpu ? mpu->get_data_parallel_world_size() : 1);
  CheckpointOptions& chosen = keeping.options;
  chosen.partition_activations = options.partition_activations.value_or(chosen.partition_activations);
  chosen.contiguous_checkpointing =
      options.contiguous_checkpointing.value_or(chosen.contiguous_checkpointing);
  if (options.num_checkpoints) chosen.num_checkpoints = options.num_checkpoints;
  chosen.checkpoint_in_cpu = options.checkpoint_in_cpu.value_or(chosen.checkpoint_in_cpu);
  chosen.synchronize = options.synchronize.value_or(chosen.synchronize);
  chosen.profile = options.profile.value_or(chosen.profile);
  set(std::move(keeping));
  const std::lock_guard lock(current().mutex);
  current().is_configured = true;
}

bool is_configured() {
  const std::lock_guard lock(current().mutex);
  return current().is_configured;
}

void reset() {
  const auto keeping = current_keeping();
  if (keeping->buffers) keeping->buffers->clear();
}

void set_num_layers(int64_t num_layers) {
  Keeping keeping = copy_of_current();
  keeping.options.num_checkpoints = num_layers;
  set(std::move(keeping));
}

void partition_activations_in_checkpoint(bool partition_activations) {
  Keeping keeping = copy_of_current();
  keeping.options.partition_activations = partition_activations;
  set(std::move(keeping));
}

CheckpointOptions current_options() { return current_keeping()->options; }

std::shared_ptr<const Keeping> current_keeping() {
  const std::lock_guard lock(current().mutex);
  return current().keeping;
}

}  // namespace deepspeed::checkpointing
