#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<PipelineConfig>& pipeline_table() {
  using C = PipelineConfig;
  static const Table<C> table({
      entry("stages", &C::stages, "How many stages; null: as many as the module says.", {at_least(1)}),
      entry("partition", &C::partition,
            "How layers are shared out: uniform, parameters, profile, type:REGEX; best: as the module says."),
      entry("seed_layers", &C::seed_layers, "Seed each layer by its index before it is built."),
      entry("activation_checkpoint_interval", &C::activation_checkpoint_interval,
            "Layers between two checkpoints of activations; 0: as the module says.", {at_least(0)}),
      entry("pipe_partitioned", &C::pipe_partitioned,
            "Send the first tensor of activations in parts, of which each slice (model-parallel rank) has "
            "one. It must be alike on all of them; set it to false where it is not."),
      entry("grad_partitioned", &C::grad_partitioned,
            "Send the gradient of that tensor in parts too, where pipe_partitioned is true."),
      entry("use_reentrant", &C::use_reentrant, "Checkpoint activations in the reentrant way."),
      entry("schedule", &C::schedule, "The order of forward and backward passes in a batch.",
            {one_of({"1f1b", "interleaved", "zero_bubble"})}),
      entry("model_chunks", &C::model_chunks, "Parts of the model that a stage of interleaved holds.",
            {at_least(1)}),
  });
  return table;
}

}  // namespace deepspeed::config
