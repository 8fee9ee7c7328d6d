// The YAML file that `accelerate config` writes, read and written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/yaml/yaml_file.h"

namespace deepspeed::accelerate {

/// Holds what a file says, as Accelerate's class of the same name holds it after it has filled in defaults.
class DEEPSPEED_API ClusterConfig {
 public:
  /// Makes the config of a file with the given keys. The other keys get their defaults, and older shapes
  /// become the present one (`fp16: true`, `dynamo_backend: 'NO'`). Keys that Accelerate does not have are
  /// kept. Throws ConfigError, naming file, line and key, for a value of another type, for a distributed_type
  /// that this library does not run, and for Amazon SageMaker.
  explicit ClusterConfig(const YamlDocument& document);

  /// Reads a file, YAML or JSON by its suffix. Throws IoError if there is none, and as the constructor.
  static ClusterConfig from_file(const std::filesystem::path& path);

  /// Returns the file's text. As in Accelerate, keys are sorted, and null values and empty maps left out.
  std::string to_yaml() const;
  /// Writes the file, and its folder if there is none. Throws IoError.
  void to_file(const std::filesystem::path& path) const;

  /// Returns the value of a key, or null if it has none.
  const Json& at(const std::string& key) const;
  /// Returns the value as text; empty if it is null.
  std::string text_of(const std::string& key) const;
  /// Returns the value as a whole number, or nothing if it is null.
  std::optional<int> int_of(const std::string& key) const;
  bool flag_of(const std::string& key) const;

  Json values;  ///< by key
};

/// Returns the file that is read and written if no path is given: `accelerate/default_config.yaml` in
/// $HF_HOME, in $XDG_CACHE_HOME/huggingface or in ~/.cache/huggingface.
DEEPSPEED_API std::filesystem::path default_config_file();

}  // namespace deepspeed::accelerate
