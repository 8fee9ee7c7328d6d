// The keys of a config.json, as Transformers writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/json_file.h"

namespace examples {

/// Keys that are read one by one. A model reads those that it computes by, names those for which it knows one
/// value alone, and ends with others(), which refuses all that it has not heard of.
class ConfigKeys {
 public:
  /// Reads a config.json, or the one in a folder. Throws deepspeed::IoError where there is none, and
  /// ConfigError for a text that is no JSON and for another `model_type`.
  ConfigKeys(const std::filesystem::path& path, const std::string& model_type);
  /// `source`: where the object stands, for errors.
  ConfigKeys(deepspeed::Json object, std::string source);

  /// Returns a value: int64_t, double, bool or std::string. Throws ConfigError, naming the key, where it is
  /// absent, null or of another type.
  template <class T>
  T get(const char* key) {
    const auto found = find<T>(key);
    if (!found) deepspeed::raise<deepspeed::ConfigError>(source_, ": ", key, " is missing");
    return *found;
  }
  /// Returns `otherwise` where the key is absent or null.
  template <class T>
  T get(const char* key, T otherwise) {
    return find<T>(key).value_or(std::move(otherwise));
  }
  /// Returns nothing where the key is absent or null.
  template <class T>
  std::optional<T> find(const char* key) {
    const deepspeed::Json* value = take(key);
    if (value == nullptr) return std::nullopt;
    if (!is_a<T>(*value)) raise_type(key, *value, name_of<T>());
    return value->get<T>();
  }
  bool has(const char* key) const { return keys_.contains(key); }  // be it null
  /// Returns the object under a key.
  std::optional<ConfigKeys> object(const char* key);

  /// Throws NotSupportedError, naming the key, where it is there and neither null nor `value`. `advice`: a
  /// way out.
  void only(const char* key, const deepspeed::Json& value, const char* advice = "");

  /// Returns the keys that say nothing of what a model computes, so that they can be written again. Throws
  /// NotSupportedError, naming the key, for one that was not read and is not among them.
  deepspeed::Json others() const;

  const std::string& source() const { return source_; }

 private:
  template <class T>
  static bool is_a(const deepspeed::Json& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value.is_boolean();
    } else if constexpr (std::is_same_v<T, int64_t>) {
      return value.is_number_integer();
    } else if constexpr (std::is_same_v<T, double>) {
      return value.is_number();
    } else {
      return value.is_string();
    }
  }
  template <class T>
  static const char* name_of() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_same_v<T, int64_t>) return "an integer";
    if constexpr (std::is_same_v<T, double>) return "a number";
    return "a string";
  }
  /// Returns the value of a key, which counts as read; null where it is absent or null.
  const deepspeed::Json* take(const char* key);
  [[noreturn]] void raise_type(const char* key, const deepspeed::Json& value, const char* expected) const;

  deepspeed::Json keys_;
  std::string source_;
  std::set<std::string> taken_;
};

/// Throws ConfigError, naming the key, where the value is below 1.
void require_positive(const ConfigKeys& keys, const char* key, int64_t value);

}  // namespace examples
