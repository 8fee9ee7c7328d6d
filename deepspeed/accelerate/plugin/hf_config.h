// A DeepSpeed config whose values may still be "auto", read and changed by dotted paths.
#pragma once

#include <optional>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/source.h"

namespace deepspeed::accelerate {

/// Holds a config as Accelerate's class of the same name does. Paths look like "zero_optimization.stage".
class DEEPSPEED_API HfDeepSpeedConfig {
 public:
  /// Takes an object, the path of a JSON file, JSON text, or such a text in base64. Throws ConfigError, with
  /// Accelerate's words, for a text that is none of these, and what ConfigSource::read() throws.
  HfDeepSpeedConfig(const std::string& path_or_text);
  HfDeepSpeedConfig(const char* path_or_text) : HfDeepSpeedConfig(std::string(path_or_text)) {}
  HfDeepSpeedConfig(Json object);

  /// Returns the value at `path`, or null for a path that does not exist.
  Json* find(const std::string& path);
  const Json* find(const std::string& path) const;
  /// Returns the value at `path`, or `otherwise` if there is none.
  Json get_value(const std::string& path, const Json& otherwise = nullptr) const;
  /// Removes the value at `path`. Throws ConfigError if there is none and it must exist.
  void del_config_sub_tree(const std::string& path, bool must_exist = false);

  /// Returns whether the value at `path` is the text "auto".
  bool is_auto(const std::string& path) const;
  /// Returns whether the value at `path` exists and counts as true in Python.
  bool is_true(const std::string& path) const;
  /// Returns whether the value at `path` exists and counts as false in Python.
  bool is_false(const std::string& path) const;
  bool is_zero2() const { return get_value("zero_optimization.stage") == 2; }
  bool is_zero3() const { return get_value("zero_optimization.stage") == 3; }
  /// Returns whether stage 2 or 3 offloads to the CPU or to a disk.
  bool is_offload() const;

  Json config;
};

}  // namespace deepspeed::accelerate
