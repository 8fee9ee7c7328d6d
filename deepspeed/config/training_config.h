// The config classes of DeepSpeed's manual of version 0.3, and their base. TrainingConfig, with batch and
// fp16, converts to a JSON config with to_ds_config(). A program's own settings derive from ConfigOf in the
// same way:
//
//   struct RunConfig : deepspeed::config::ConfigOf<RunConfig> {
//     int64_t num_layers = 12;
//     deepspeed::config::FP16Config fp16;
//
//     RunConfig(Pairs pairs = {}) { update(pairs); }
//     static const deepspeed::config::Table<RunConfig>& table() {
//       using namespace deepspeed::config;
//       static const Table<RunConfig> table({
//           entry("num_layers", &RunConfig::num_layers, "Layers of the model.", {at_least(1)}),
//           section_entry("fp16", &RunConfig::fp16, FP16Config::table(), "Training in float16."),
//       });
//       return table;
//     }
//
//    protected:
//     Parts parts() override { return {{"fp16", &fp16}}; }
//   };
//
//   auto run = RunConfig::from_dict({{"num_layers", 24}, {"fp16", {{"enabled", true}}}});
//   run.num_layers == run["num_layers"];
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Holds key/value pairs, completed and checked together with nested configs. The class itself accepts any
/// keys. Classes derived from ConfigOf define their keys. Any other key, or a value of another type or out of
/// range, is a ConfigError that names the key's path and the nearest known key.
class DEEPSPEED_API Config {
 public:
  using Pairs = std::initializer_list<std::pair<std::string, Json>>;

  Config(Pairs pairs = {});
  virtual ~Config() = default;
  Config(const Config&) = default;
  Config& operator=(const Config&) = default;

  /// Makes a config from a JSON object. Throws ConfigError for anything else.
  static Config from_dict(const Json& dict);

  /// Sets the given keys and keeps the others.
  void update(Pairs pairs);
  void update(const Json& dict);
  void set(const std::string& key, const Json& value) { update(Json::object({{key, value}})); }

  /// Returns a key's value. Throws ConfigError, naming the nearest key, for an unknown key.
  Json operator[](const std::string& key) const;
  bool contains(const std::string& key) const;
  virtual Json to_dict() const { return values_; }

  /// Infers missing values if possible, here and in nested configs. `world_size` is the number of
  /// data-parallel ranks.
  void resolve(int64_t world_size = 1);

  /// Resolves, then checks this config and nested ones. Throws ConfigError with the key's path.
  void validate(int64_t world_size = 1);

  /// Returns whether validate() would throw no ConfigError.
  bool is_valid(int64_t world_size = 1);

 protected:
  using Parts = std::vector<std::pair<std::string, Config*>>;

  // A derived class may override these functions. resolve_own() and check_own() are called after those of the
  // nested configs, which parts() returns with their keys.
  virtual void resolve_own(int64_t /*world_size*/) {}
  virtual void check_own(int64_t /*world_size*/) const {}
  virtual Parts parts() { return {}; }

  // ConfigOf overrides these functions. Null fields() means that any key is accepted.
  virtual const std::vector<Field>* fields() const { return nullptr; }
  virtual void assign(const Json& values) { values_.update(values); }

 private:
  Json values_ = Json::object();
};

/// Implements a config class whose keys Derived::table() defines.
template <class Derived>
class ConfigOf : public Config {
 public:
  static Derived from_dict(const Json& dict) {
    Derived config;
    config.update(dict);
    return config;
  }
  Json to_dict() const override { return Derived::table().to_json(static_cast<const Derived&>(*this)); }

 protected:
  const std::vector<Field>* fields() const override { return &Derived::table().fields(); }
  void assign(const Json& values) override { Derived::table().assign(static_cast<Derived&>(*this), values); }
};

/// Holds the batch sizes: train_batch_size = micro_batch_size * gradient_accumulation_steps * data-parallel
/// ranks. Any two of the three give the third. If only train_batch_size or micro_batch_size is given, the
/// other two follow from it.
class DEEPSPEED_API BatchConfig : public ConfigOf<BatchConfig> {
 public:
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;  // also accepted as micro_batch_size
  std::optional<int64_t> gradient_accumulation_steps;

  BatchConfig(Pairs pairs = {}) { update(pairs); }
  static const Table<BatchConfig>& table();

 protected:
  void resolve_own(int64_t world_size) override;
  void check_own(int64_t world_size) const override;
};

class DEEPSPEED_API FP16Config : public ConfigOf<FP16Config> {
 public:
  bool enabled = false;
  double clip = 1.0;  // the largest norm of the gradients; 0: unlimited

  FP16Config(Pairs pairs = {}) { update(pairs); }
  static const Table<FP16Config>& table();

 protected:
  void check_own(int64_t world_size) const override;
};

class DEEPSPEED_API TrainingConfig : public ConfigOf<TrainingConfig> {
 public:
  BatchConfig batch;
  FP16Config fp16;

  TrainingConfig(Pairs pairs = {}) { update(pairs); }
  static const Table<TrainingConfig>& table();

  /// Writes a JSON config for initialize(): batch sizes, fp16.enabled and gradient_clipping.
  Json to_ds_config() const;

 protected:
  Parts parts() override { return {{"batch", &batch}, {"fp16", &fp16}}; }
};

}  // namespace deepspeed::config
