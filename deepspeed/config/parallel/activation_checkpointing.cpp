#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<ActivationCheckpointingConfig>& activation_checkpointing_table() {
  using C = ActivationCheckpointingConfig;
  static const Table<C> table({
      entry("partition_activations", &C::partition_activations,
            "Share checkpoints out among model-parallel ranks."),
      entry("cpu_checkpointing", &C::cpu_checkpointing, "Keep checkpoints on the host."),
      entry("contiguous_memory_optimization", &C::contiguous_memory_optimization,
            "Copy checkpoints into one buffer; needs partition_activations, and number_checkpoints here or "
            "as an argument of configure()."),
      entry("number_checkpoints", &C::number_checkpoints, "How many checkpoints a forward makes.",
            {at_least(1)}),
      entry("synchronize_checkpoint_boundary", &C::synchronize_checkpoint_boundary,
            "Wait for the device at each checkpoint."),
      entry("profile", &C::profile, "Log the times of forward and backward at each checkpoint."),
  });
  return table;
}

}  // namespace deepspeed::config
