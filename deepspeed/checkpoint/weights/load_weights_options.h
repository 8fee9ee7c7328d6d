// Holds the arguments and the result of load_weights().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace deepspeed::checkpoint {

/// Replaces every match of `pattern` in a name by `replacement`. `pattern` is a regular expression in
/// ECMAScript's grammar; ^ and $ match the name's ends. In `replacement`, $1, $2, ... stand for the captured
/// groups.
struct RenameRule {
  std::string pattern;
  std::string replacement;
};

struct LoadWeightsOptions {
  /// Requires the same names in the file and the model; false: load the common names. Shapes and dtypes have
  /// to fit in any case.
  bool strict = true;
  /// Maps names in the file to names in the model. An empty name skips the weight.
  std::map<std::string, std::string> rename = {};
  /// Lists rules that are applied, in order, to every name that `rename` does not map. For example:
  /// {{"^module\\.", ""}, {"\\.bias_mask$", ""}}.
  std::vector<RenameRule> rename_rules = {};
  /// Lists patterns of names in the model. The file holds matrices of these names transposed, as GPT-2's
  /// Conv1D does.
  std::vector<std::string> transpose = {};
  /// Key of the state dictionary in a file of torch.save, if unusual.
  std::string key = {};
  /// Verifies all checksums before the first change, so that a damaged file changes nothing. If false, files
  /// are read once, and damage is an error in the middle of the load.
  bool verify_first = true;
  /// Selects the model-parallel rank to read from a checkpoint folder, if layers are split. It has no effect
  /// on files of weights, which hold one part.
  std::optional<int> mp_rank = {};
};

/// Reports what was loaded and what strict = false skipped.
struct LoadedWeights {
  std::vector<std::string> loaded;      // names in the model
  std::vector<std::string> missing;     // names in the model that the files lack
  std::vector<std::string> unexpected;  // names in the files that the model lacks
};

}  // namespace deepspeed::checkpoint
