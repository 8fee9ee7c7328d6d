// Where a config comes from.
#pragma once

#include <filesystem>
#include <string>
#include <variant>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Holds a path, JSON text, JSON text in base64, or a JSON object, and is built from each without a cast. A
/// string is JSON text where it starts with '{' (or '[', which is an error later) after white space and
/// comments, else the path of a file, and where there is no such file the base64 of JSON text.
class DEEPSPEED_API ConfigSource {
 public:
  ConfigSource(const char* path_or_text);
  ConfigSource(std::string path_or_text);
  ConfigSource(std::filesystem::path path);
  ConfigSource(Json object);

  /// Reads the object. Comments and trailing commas are allowed in files and text. Throws ConfigError (line,
  /// column and key; no object; nested too deep) and IoError (a file that cannot be read).
  Json read() const;

 private:
  struct Text {
    std::string text;
  };
  std::variant<Text, std::filesystem::path, Json> source_;
};

}  // namespace deepspeed::config
