// A renaming gives weights that another program named the model's names.
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
  /// Checks the patterns. `exact`: name in the file -> name in the model; a name that stands there is renamed
  /// by this alone. All others pass through `rules`, one after the other. Throws UsageError for a pattern
  /// that is none.
  WeightRenaming(std::map<std::string, std::string> exact, const std::vector<RenameRule>& rules);

  /// Returns the model's name; nothing where it is empty, since the weight is left out on purpose. Throws
  /// CheckpointError for a name that is too long to be one.
  std::optional<std::string> rename(const std::string& name) const;

 private:
  std::map<std::string, std::string> exact_;
  std::vector<std::pair<std::regex, std::string>> rules_;
};

/// Says whether one of several patterns fits somewhere in a name.
class NamePatterns {
 public:
  /// Compiles the patterns. Throws UsageError for one that is none.
  explicit NamePatterns(const std::vector<std::string>& patterns);
  bool fit(const std::string& name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace deepspeed::checkpoint
