#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {

std::vector<Field> elasticity_keys() {
  return {
      boolean("enabled", false, "Turns the section on: it chooses the batch sizes."),
      integer("max_train_batch_size", 2000, "The greatest train_batch_size.", {at_least(1)}),
      integers("micro_batch_sizes", Json::array({2, 4, 6}), "The micro batch sizes to choose from.",
               {at_least(1)}),
      integer("min_gpus", 1, "The fewest devices.", {at_least(1)}),
      integer("max_gpus", 10000, "The most devices.", {at_least(1)}),
      integer("num_gpus_per_node", 1, "Devices of a node.", {at_least(1)}),
      integer("model_parallel_size", 1, "Ranks that share a model.", {at_least(1)}),
      integer("min_time", 0, "Minutes until the number of devices may change again.",
              {at_least(0), without_effect("a job that loses a machine starts again at once")}),
      boolean("prefer_larger_batch", true, "Of batch sizes that fit as well, the larger."),
      boolean("ignore_non_elastic_batch_info", false, "Accept batch keys beside the section."),
      number("version", 0.2, "The version of the rules.", {above(0)}),
  };
}

}  // namespace deepspeed::config
