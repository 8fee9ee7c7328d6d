#include "deepspeed/config/config.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/batch.h"
#include "deepspeed/config/rules.h"
#include "deepspeed/config/support.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/read.h"
#include "deepspeed/config/tools/elastic_batch.h"
#include "deepspeed/config/top_level.h"

namespace deepspeed::config {
namespace {

std::optional<int64_t> batch_size(const Json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || found->is_null()) return std::nullopt;
  return found->get<int64_t>();
}

/// Lets the section elasticity choose the sizes. Given sizes must equal the chosen ones, unless the section
/// says to ignore them. world: data-parallel ranks, each with the section's model_parallel_size devices.
BatchSizes choose_elastic_sizes(const Json& elasticity, const BatchSizes& given, int64_t world) {
  const ElasticRules rules = ElasticRules::from_json(elasticity);
  const ElasticBatch batch = elastic_batch_of_job(rules, world * rules.model_parallel_size);
  const BatchSizes chosen{batch.train_batch_size, batch.micro_batch_size,
                          batch.train_batch_size / (batch.micro_batch_size * world)};
  const auto require_same = [&](const char* key, const std::optional<int64_t>& size,
                                const std::optional<int64_t>& expected) {
    if (!size || size == expected || rules.ignore_non_elastic_batch_info) return;
    raise<ConfigError>(key, ": got ", *size, " beside elasticity.enabled true, which chooses ", *expected,
                       "; leave the key out, or set elasticity.ignore_non_elastic_batch_info to true");
  };
  require_same("train_batch_size", given.train_batch_size, chosen.train_batch_size);
  require_same("train_micro_batch_size_per_gpu", given.train_micro_batch_size_per_gpu,
               chosen.train_micro_batch_size_per_gpu);
  require_same("gradient_accumulation_steps", given.gradient_accumulation_steps,
               chosen.gradient_accumulation_steps);
  return chosen;
}

void resolve_batch(DeepSpeedConfig& config, const Json& values, int64_t world) {
  const BatchSizes given = {batch_size(values, "train_batch_size"),
                            batch_size(values, "train_micro_batch_size_per_gpu"),
                            batch_size(values, "gradient_accumulation_steps")};
  const bool is_elastic = config.elasticity.is_object() && config.elasticity.value("enabled", false);
  const BatchSizes sizes =
      resolve_batch_sizes(is_elastic ? choose_elastic_sizes(config.elasticity, given, world) : given, world);
  config.train_batch_size = *sizes.train_batch_size;
  config.train_micro_batch_size_per_gpu = *sizes.train_micro_batch_size_per_gpu;
  config.gradient_accumulation_steps = *sizes.gradient_accumulation_steps;
}

/// Drops a section without a type, which would choose nothing.
template <class Section>
void drop_without_type(std::optional<Section>& section, const char* name) {
  if (!section || !section->type.empty()) return;
  log::warning("[config] ", name, " has no type, so the section has no effect");
  section.reset();
}

/// Moves `allgather_size` from the top level to zero_optimization. Configs with the older form of that
/// section, true or false, have it there.
void apply_allgather_size(DeepSpeedConfig& config) {
  if (!config.allgather_size) return;
  const auto zero = config.raw.find("zero_optimization");
  if (zero == config.raw.end() || !zero->is_boolean()) {
    raise<ConfigError>("allgather_size: got it without zero_optimization true or false, expected ",
                       "zero_optimization.allgather_bucket_size in its place");
  }
  if (config.zero_optimization.stage > 0)
    config.zero_optimization.allgather_bucket_size = *config.allgather_size;
  config.allgather_size.reset();
}

/// Moves two keys of old versions to their replacements.
void apply_older_keys(DeepSpeedConfig& config) {
  if (config.disable_allgather) config.zero_optimization.allgather_partitions = false;
  if (!config.fp32_allreduce) return;
  if (config.communication_data_type.value_or("fp32") != "fp32") {
    raise<ConfigError>("fp32_allreduce: got true beside communication_data_type \"",
                       *config.communication_data_type, "\", expected one of them");
  }
  config.communication_data_type = "fp32";
}

/// Turns clipping off by default for optimizers whose ranks exchange 1 bit per element. These have no
/// gradient norm to clip by. A clipping value that is given is an error (rules.cpp).
void apply_exchange(DeepSpeedConfig& config) {
  const bool is_given = config.raw.contains("gradient_clipping");
  if (!is_given && config.optimizer && find_one_bit_optimizer(config.optimizer->type) != nullptr)
    config.gradient_clipping = 0.0;
}

void warn(const DeepSpeedConfig& config, const Json& values) {
  std::string ignored;
  for (const std::string& value : values_without_effect(all_options(), values, "", values))
    ignored += (ignored.empty() ? "" : ", ") + value;
  if (!ignored.empty()) log::warning("[config] without effect: ", ignored);
  if (config.vocabulary_size && *config.vocabulary_size % 8 != 0) {
    log::warning("[config] vocabulary_size ", *config.vocabulary_size,
                 " is not a multiple of 8, which is slower on tensor cores");
  }
}

DeepSpeedConfig resolve(const Json& given, int64_t data_parallel_world_size) {
  DeepSpeedConfig config;
  config.raw = given;
  const Json values = read_section(all_options(), config.raw, "");
  top_level_table().assign(config, values);
  drop_without_type(config.optimizer, "optimizer");
  drop_without_type(config.scheduler, "scheduler");
  apply_allgather_size(config);
  apply_older_keys(config);
  apply_exchange(config);
  resolve_batch(config, values, data_parallel_world_size);
  require_consistent(config, data_parallel_world_size);
  warn(config, values);
  return config;
}

}  // namespace

DeepSpeedConfig load_config(const ConfigSource& source, int64_t data_parallel_world_size) {
  const Json given = source.read();
  require_supported(all_options(), given, "");
  return resolve(given, data_parallel_world_size);
}

DeepSpeedConfig read_config(const ConfigSource& source, int64_t data_parallel_world_size) {
  return resolve(source.read(), data_parallel_world_size);
}

Json to_json(const DeepSpeedConfig& config) { return top_level_table().to_json(config); }

}  // namespace deepspeed::config
