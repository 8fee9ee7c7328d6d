// A config reads its keys by the table of its class. It resolves and checks nested configs before itself. An
// error in a nested config gets the path seen from outside.
#include "deepspeed/config/training_config.h"

#include <cmath>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/batch.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

/// Rethrows the error of a nested config with the path seen from outside.
[[noreturn]] void raise_below(const std::string& key, const ConfigError& error) {
  const std::string text = error.what(), prefix = "[config] ";
  throw ConfigError(prefix + key + "." + text.substr(text.starts_with(prefix) ? prefix.size() : 0));
}

}  // namespace

Config::Config(Pairs pairs) {
  for (const auto& [key, value] : pairs) values_[key] = value;
}

Config Config::from_dict(const Json& dict) {
  Config config;
  config.update(dict);
  return config;
}

void Config::update(Pairs pairs) {
  if (pairs.size() == 0) return;  // avoids asking for a class's own table while it is being made
  Json dict = Json::object();
  for (const auto& [key, value] : pairs) {
    if (dict.contains(key)) raise<ConfigError>(path_part(key), ": the key is given twice, expected once");
    dict[key] = value;
  }
  update(dict);
}

void Config::update(const Json& dict) {
  if (!dict.is_object()) raise<ConfigError>("got ", json_excerpt(dict), ", expected key/value pairs");
  require_bounded_depth(dict);
  assign(fields() == nullptr ? dict : read_section(section("", "", *fields()), dict, ""));
}

Json Config::operator[](const std::string& key) const {
  const Field* field = fields() == nullptr ? nullptr : find_field(*fields(), key);
  const Json dict = to_dict();
  const auto found = dict.find(field == nullptr ? key : field->key);
  if (found != dict.end()) return *found;
  std::vector<std::string> known;
  for (const auto& [other, unused] : dict.items()) known.push_back(other);
  const std::string nearest = nearest_key(key, known);
  raise<ConfigError>(path_part(key), ": unknown key, expected one that the config has",
                     nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

bool Config::contains(const std::string& key) const {
  return fields() == nullptr ? values_.contains(key) : find_field(*fields(), key) != nullptr;
}

void Config::resolve(int64_t world_size) {
  for (const auto& [key, part] : parts()) part->resolve(world_size);
  resolve_own(world_size);
}

void Config::validate(int64_t world_size) {
  resolve(world_size);
  for (const auto& [key, part] : parts()) {
    try {
      part->validate(world_size);
    } catch (const ConfigError& error) {
      raise_below(key, error);
    }
  }
  check_own(world_size);
}

bool Config::is_valid(int64_t world_size) {
  try {
    validate(world_size);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

const Table<BatchConfig>& BatchConfig::table() {
  using C = BatchConfig;
  static const Table<C> table({
      entry("train_batch_size", &C::train_batch_size,
            "Samples of one optimizer step, of all ranks together."),
      entry("train_micro_batch_size_per_gpu", &C::train_micro_batch_size_per_gpu,
            "Samples of one forward pass on one rank.", {alias("micro_batch_size")}),
      entry("gradient_accumulation_steps", &C::gradient_accumulation_steps,
            "Forward and backward passes of one optimizer step."),
  });
  return table;
}

void BatchConfig::resolve_own(int64_t world_size) {
  try {
    const BatchSizes sizes = resolve_batch_sizes(
        {train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps}, world_size);
    train_batch_size = sizes.train_batch_size;
    train_micro_batch_size_per_gpu = sizes.train_micro_batch_size_per_gpu;
    gradient_accumulation_steps = sizes.gradient_accumulation_steps;
  } catch (const ConfigError&) {
    // Nothing can be inferred; validate() reports why.
    return;
  }
}

void BatchConfig::check_own(int64_t world_size) const {
  resolve_batch_sizes({train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps},
                      world_size);
}

const Table<FP16Config>& FP16Config::table() {
  using C = FP16Config;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Train in float16 with loss scaling."),
      entry("clip", &C::clip, "The greatest norm of the gradients; 0: any."),
  });
  return table;
}

void FP16Config::check_own(int64_t) const {
  if (!std::isfinite(clip) || clip < 0)
    raise<ConfigError>("clip: got ", clip, ", expected a number of at least 0");
}

const Table<TrainingConfig>& TrainingConfig::table() {
  using C = TrainingConfig;
  static const Table<C> table({
      section_entry("batch", &C::batch, BatchConfig::table(), "The batch sizes."),
      section_entry("fp16", &C::fp16, FP16Config::table(), "Training in float16."),
  });
  return table;
}

Json TrainingConfig::to_ds_config() const {
  Json config = Json::object();
  const Json sizes = batch.to_dict();
  for (const auto& [key, value] : sizes.items()) {
    if (!value.is_null()) config[key] = value;
  }
  config["fp16"] = {{"enabled", fp16.enabled}};
  config["gradient_clipping"] = fp16.clip;
  return config;
}

}  // namespace deepspeed::config
