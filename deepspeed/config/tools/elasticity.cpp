#include "deepspeed/base/error.h"
#include "deepspeed/config/table/read.h"
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

ElasticRules ElasticRules::from_json(const Json& given) {
  static const Field keys = section("elasticity", "", elasticity_table().fields());
  ElasticRules rules;
  elasticity_table().assign(rules, read_section(keys, given, "elasticity"));
  for (const char* key : {"max_train_batch_size", "micro_batch_sizes"}) {
    if (rules.enabled && !given.contains(key))
      raise<ConfigError>("elasticity.", key, ": is missing, but elasticity.enabled true needs it");
  }
  if (rules.micro_batch_sizes.empty())
    raise<ConfigError>("elasticity.micro_batch_sizes: got [], expected positive whole numbers");
  if (rules.min_gpus > rules.max_gpus) {
    raise<ConfigError>("elasticity.min_gpus: got ", rules.min_gpus,
                       ", expected at most elasticity.max_gpus, ", rules.max_gpus);
  }
  if (rules.version != 0.1 && rules.version != 0.2)
    raise<ConfigError>("elasticity.version: got ", rules.version, ", expected 0.1 or 0.2");
  if (rules.version == 0.1 && rules.model_parallel_size > 1) {
    raise<ConfigError>("elasticity.model_parallel_size: got ", rules.model_parallel_size,
                       " with elasticity.version 0.1, expected version 0.2");
  }
  return rules;
}

Json ElasticRules::to_json() const { return elasticity_table().to_json(*this); }

}  // namespace deepspeed::config
