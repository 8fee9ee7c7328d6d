// Maps weight names of another program to the model's names.
#pragma once

#include <map>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/checkpoint/weights/load_weights_options.h"

namespace deepspeed::checkpoint {

class WeightRenaming {
 public:
  /// Checks the patterns. `exact` maps names in the file to names in the model. All other names pass through
  /// `rules` in order. Throws UsageError for an invalid pattern.
  WeightRenaming(std::map<std::string, std::string> exact, const std::vector<RenameRule>& rules);

  /// Returns the model's name, or nothing if the weight is to be skipped. Throws CheckpointError for a name
  /// that is too long.
  std::optional<std::string> rename(const std::string& name) const;

 private:
  std::map<std::string, std::string> exact_;
  std::vector<std::pair<std::regex, std::string>> rules_;
};

/// Checks whether any of several patterns matches a part of a name.
class NamePatterns {
 public:
  /// Compiles the patterns. Throws UsageError for an invalid one.
  explicit NamePatterns(const std::vector<std::string>& patterns);
  bool fit(const std::string& name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace deepspeed::checkpoint
