#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<PipelineConfig>& pipeline_table() {
  using C = PipelineConfig;
  static const Table<C> table({
      any_entry("stages", &C::stages, "How many stages.", {not_yet()}),
      entry("partition", &C::partition, "How layers are shared out.", {not_yet()}),
      entry("seed_layers", &C::seed_layers, "A seed for each layer.", {not_yet()}),
      entry("activation_checkpoint_interval", &C::activation_checkpoint_interval,
            "Layers between two checkpoints.", {not_yet()}),
      entry("pipe_partitioned", &C::pipe_partitioned, "Send activations in parts.", {not_yet()}),
      entry("grad_partitioned", &C::grad_partitioned, "Send their gradients in parts.", {not_yet()}),
      entry("use_reentrant", &C::use_reentrant, "Activation checkpointing of the reentrant kind.",
            {not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
