#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {

const Table<ElasticityConfig>& elasticity_table() {
  using C = ElasticityConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("max_train_batch_size", &C::max_train_batch_size, "The greatest train_batch_size.",
            {at_least(1)}),
      entry("micro_batch_sizes", &C::micro_batch_sizes, "The micro batch sizes to choose from.",
            {at_least(1)}),
      entry("min_gpus", &C::min_gpus, "The fewest devices.", {at_least(1)}),
      entry("max_gpus", &C::max_gpus, "The most devices.", {at_least(1)}),
      entry("num_gpus_per_node", &C::num_gpus_per_node, "Devices of a node.", {at_least(1)}),
      entry("model_parallel_size", &C::model_parallel_size, "Ranks that share a model.", {at_least(1)}),
      entry("min_time", &C::min_time, "Minutes until the number of devices may change again.", {at_least(0)}),
      entry("prefer_larger_batch", &C::prefer_larger_batch, "Of batch sizes that fit as well, the larger."),
      entry("ignore_non_elastic_batch_info", &C::ignore_non_elastic_batch_info,
            "Accept batch keys beside the section."),
      entry("version", &C::version, "The version of the rules.", {above(0)}),
  });
  return table;
}

}  // namespace deepspeed::config
