#include "deepspeed/config/config.h"

#include "deepspeed/base/log.h"
#include "deepspeed/config/batch.h"
#include "deepspeed/config/read.h"
#include "deepspeed/config/rules.h"
#include "deepspeed/config/top_level.h"

namespace deepspeed::config {
namespace {

std::optional<int64_t> batch_size(const Json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || found->is_null()) return std::nullopt;
  return found->get<int64_t>();
}

void resolve_batch(DeepSpeedConfig& config, const Json& values, int64_t world) {
  const BatchSizes sizes = resolve_batch_sizes(
      {batch_size(values, "train_batch_size"), batch_size(values, "train_micro_batch_size_per_gpu"),
       batch_size(values, "gradient_accumulation_steps")},
      world);
  config.train_batch_size = *sizes.train_batch_size;
  config.train_micro_batch_size_per_gpu = *sizes.train_micro_batch_size_per_gpu;
  config.gradient_accumulation_steps = *sizes.gradient_accumulation_steps;
}

/// A section without a type chooses nothing.
template <class Section>
void drop_without_type(std::optional<Section>& section, const char* name) {
  if (!section || !section->type.empty()) return;
  log::warning("[config] ", name, " has no type, so the section has no effect");
  section.reset();
}

/// The older form of the section, true or false, takes its bucket from the top level.
void apply_allgather_size(DeepSpeedConfig& config, const Json& values) {
  const auto found = values.find("allgather_size");
  const bool on = config.zero_optimization.stage > 0;
  if (on && found != values.end() && !found->is_null()) {
    config.zero_optimization.allgather_bucket_size = found->get<int64_t>();
  }
}

void warn(const DeepSpeedConfig& config) {
  if (config.vocabulary_size && *config.vocabulary_size % 8 != 0) {
    log::warning("[config] vocabulary_size ", *config.vocabulary_size,
                 " is no multiple of 8, which is slower on tensor cores");
  }
}

}  // namespace

DeepSpeedConfig load_config(const ConfigSource& source, int64_t data_parallel_world_size) {
  DeepSpeedConfig config;
  config.raw = source.read();
  const Json values = read_section(all_options(), config.raw, "");
  top_level_table().assign(config, values);
  drop_without_type(config.optimizer, "optimizer");
  drop_without_type(config.scheduler, "scheduler");
  apply_allgather_size(config, values);
  resolve_batch(config, values, data_parallel_world_size);
  require_consistent(config, values, data_parallel_world_size);
  require_supported(all_options(), values, "");
  warn(config);
  return config;
}

Json to_json(const DeepSpeedConfig& config) { return top_level_table().to_json(config); }

}  // namespace deepspeed::config
