// Reads the `params` object of a config section key by key, and says which keys nobody asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::optim {

/// Every getter makes its key known. A key that is absent or null has the fallback. Values of another kind
/// throw ConfigError naming `<path>.<key>`.
class JsonParams {
 public:
  /// `path`: of the object in the config, e.g. "optimizer.params". Throws ConfigError where `params` is
  /// neither an object nor null.
  JsonParams(std::string path, const Json& params);

  bool contains(const std::string& key);
  double number(const std::string& key, double fallback);
  double required_number(const std::string& key);
  int64_t whole(const std::string& key, int64_t fallback);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  std::pair<double, double> pair(const std::string& key, std::pair<double, double> fallback);
  /// One number for all, or a list of `count` numbers.
  std::vector<double> numbers(const std::string& key, const std::vector<double>& fallback);
  std::vector<double> required_numbers(const std::string& key, size_t count);

  /// Throws ConfigError for a key that no getter was called with, naming the nearest known one.
  void reject_unknown() const;
  /// Throws ConfigError with the text `[config] <path>.<key>: what`.
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  const Json* find(const std::string& key);

  std::string path_;
  Json params_;
  std::vector<std::string> known_;
};

}  // namespace deepspeed::optim
