// Reads a config from any of its sources.
#pragma once

#include <filesystem>
#include <string>
#include <variant>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Holds a path, JSON text, JSON text in base64, or a JSON object. Each of them converts to a ConfigSource
/// implicitly. A string that starts with '{' (or '[', an error later) after white space and comments is JSON
/// text. Any other string is the path of a file, or if there is no such file, JSON text in base64.
class DEEPSPEED_API ConfigSource {
 public:
  ConfigSource(const char* path_or_text);
  ConfigSource(std::string path_or_text);
  ConfigSource(std::filesystem::path path);
  ConfigSource(Json object);

  /// Reads the object. Comments and trailing commas are allowed in files and text. Throws ConfigError, with
  /// line, column and key, for faulty text, a value that is not an object, and too deep nesting. Throws
  /// IoError for a file that cannot be read.
  Json read() const;

 private:
  struct Text {
    std::string text;
  };
  std::variant<Text, std::filesystem::path, Json> source_;
};

}  // namespace deepspeed::config
