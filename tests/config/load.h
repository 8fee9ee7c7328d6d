// What the tests of the config share: loading with an error as text, and one key set in a config that is else
// valid.
#pragma once

#include <initializer_list>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/table/read.h"

#include "tests/support/error_of.h"

namespace deepspeed::config {

/// Warnings of deprecated keys are many here and tell a reader of the log nothing.
inline const bool warnings_are_off = (log::set_level(log::Level::kError), true);

/// The text of the ConfigError that loading throws, as testing::error_of() gives it.
inline std::string load_error(const ConfigSource& source, int64_t world = 1) {
  return testing::error_of<ConfigError>([&] { load_config(source, world); });
}

/// The text of the ConfigError that reading alone throws: it asks neither what this version has nor what
/// values demand of one another.
inline std::string read_error(const Json& config) {
  return testing::error_of<ConfigError>([&] { read_section(all_options(), config, ""); });
}

/// The pointer of a dotted path: "fp16.enabled" is /fp16/enabled.
inline Json::json_pointer pointer(const std::string& path) {
  std::string text = "/" + path;
  for (char& c : text) c = c == '.' ? '/' : c;
  return Json::json_pointer(text);
}

/// A valid config with the key at `path` set to `value`.
inline Json config_with(const std::string& path, const Json& value) {
  Json object = {{"train_batch_size", 8}};
  object[pointer(path)] = value;
  return object;
}

/// Holds the text of a config and what its error must say.
struct Refused {
  const char* text;
  const char* error;
};

inline void expect_refused(std::initializer_list<Refused> cases) {
  for (const Refused& c : cases) EXPECT_THAT(load_error(c.text), ::testing::HasSubstr(c.error)) << c.text;
}

}  // namespace deepspeed::config
