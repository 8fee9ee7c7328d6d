// Reads one map of an experiment's YAML by key and type. Every error names file, line and key.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/length.h"
#include "deepspeed/yaml/yaml_file.h"

namespace deepspeed::trial {

/// Returns the number that a value is, or nothing. Text such as 1e-3 counts as a number. Determined reads
/// YAML 1.2, where it is one; YAML 1.1 takes only 1.0e-3.
std::optional<double> number_of(const Json& value);

/// Reads one map. It keeps references to the document and the value. A key without a value counts as
/// absent.
class YamlSection {
 public:
  /// Checks that `value`, at `path` in the document, is a map with no other than `known` keys. The path of
  /// the whole document is "". Throws ConfigError: first for a refused key (refused_keys.h), then for an
  /// unknown one, with the nearest known key.
  YamlSection(const YamlDocument& document, std::string path, const Json& value,
              const std::vector<std::string>& known);

  /// Returns the value of a key; nullptr if it is absent or null.
  const Json* find(const std::string& key) const;

  // The functions below return the value of a key. Without one they return `absent`, nothing, or no texts.
  // They throw ConfigError for a value of another type or outside the limits.
  bool flag(const std::string& key, bool absent) const;
  std::string text(const std::string& key, const std::string& absent) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::optional<int64_t> whole(const std::string& key, int64_t minimum,
                               int64_t maximum = std::numeric_limits<int64_t>::max()) const;
  std::optional<double> number(const std::string& key) const;
  /// Returns a length: a whole number of batches, or {batches: N}, {records: N} or {epochs: N}.
  std::optional<Length> length(const std::string& key, int64_t minimum) const;
  /// Returns which of the names the value is.
  std::optional<size_t> choice(const std::string& key, const std::vector<std::string>& names) const;

  /// Returns the map below a key; nothing if it is absent.
  std::optional<YamlSection> section(const std::string& key, const std::vector<std::string>& known) const;

  /// Returns the path of a key: "searcher.metric".
  std::string path_of(const std::string& key) const;
  const YamlDocument& document() const { return *document_; }

  /// Throws ConfigError "FILE line N: PATH: parts...".
  template <class... Parts>
  [[noreturn]] void fail(const std::string& key, const Parts&... parts) const {
    fail_at(path_of(key), parts...);
  }
  /// Throws ConfigError that shows the value of a key, or says that it is missing.
  [[noreturn]] void fail_value(const std::string& key, const std::string& expected) const;

 private:
  template <class... Parts>
  [[noreturn]] void fail_at(const std::string& path, const Parts&... parts) const {
    raise<ConfigError>(document_->place_of(path), ": ", path, ": ", parts...);
  }

  const YamlDocument* document_;
  std::string path_;
  const Json* value_;
};

}  // namespace deepspeed::trial
