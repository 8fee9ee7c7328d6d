#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<ActivationCheckpointingConfig>& activation_checkpointing_table() {
  using C = ActivationCheckpointingConfig;
  static const Table<C> table({
      entry("partition_activations", &C::partition_activations, "Share them out among model-parallel ranks.",
            {not_yet()}),
      entry("cpu_checkpointing", &C::cpu_checkpointing, "Keep them on the host.", {not_yet()}),
      entry("contiguous_memory_optimization", &C::contiguous_memory_optimization,
            "Copy them into one buffer.", {not_yet()}),
      entry("number_checkpoints", &C::number_checkpoints, "How many there are.", {not_yet()}),
      entry("synchronize_checkpoint_boundary", &C::synchronize_checkpoint_boundary,
            "Wait for the device at each one.", {not_yet()}),
      entry("profile", &C::profile, "Log their times.", {not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
