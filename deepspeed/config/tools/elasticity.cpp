#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {

const Table<ElasticRules>& elasticity_table() {
  using E = ElasticRules;
  static const Table<E> table({
      entry("enabled", &E::enabled, "Turns the section on: it chooses the batch sizes."),
      entry("max_train_batch_size", &E::max_train_batch_size, "The greatest train_batch_size.",
            {at_least(1)}),
      entry("micro_batch_sizes", &E::micro_batch_sizes, "The micro batch sizes to choose from.",
            {at_least(1)}),
      entry("min_gpus", &E::min_gpus, "The fewest devices.", {at_least(1)}),
      entry("max_gpus", &E::max_gpus, "The most devices.", {at_least(1)}),
      entry("num_gpus_per_node", &E::num_gpus_per_node, "Devices of a node.", {at_least(1)}),
      entry("model_parallel_size", &E::model_parallel_size, "Ranks that share a model.", {at_least(1)}),
      entry("min_time", &E::min_time, "Minutes until the number of devices may change again.",
            {at_least(0), without_effect("a job that loses a machine starts again at once")}),
      entry("prefer_larger_batch", &E::prefer_larger_batch, "Of batch sizes that fit as well, the larger."),
      entry("ignore_non_elastic_batch_info", &E::ignore_non_elastic_batch_info,
            "Accept batch keys beside the section."),
      entry("version", &E::version, "The version of the rules.", {above(0)}),
  });
  return table;
}

}  // namespace deepspeed::config
