// load_weights() takes these arguments and gives this result.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace deepspeed::checkpoint {

/// Changes each place of a name where `pattern` fits (a regular expression in ECMAScript's grammar; ^ and $
/// are the name's ends) to `replacement`, in which $1, $2, ... are what the brackets of the pattern found.
struct RenameRule {
  std::string pattern;
  std::string replacement;
};

struct LoadWeightsOptions {
  /// Says whether a name that only the file or only the model has is an error; false: load what both have.
  /// Shapes and dtypes have to fit in any case.
  bool strict = true;
  /// Renames weights by name: name in the file -> name in the model; an empty one leaves the weight out.
  std::map<std::string, std::string> rename = {};
  /// Holds rules for all other names, applied one after the other: {{"^module\\.", ""}, {"\\.bias_mask$",
  /// ""}}.
  std::vector<RenameRule> rename_rules = {};
  /// Lists patterns of names in the model: their matrices lie transposed in the file, as those of GPT-2's
  /// Conv1D.
  std::vector<std::string> transpose = {};
  /// Is the key in a file of torch.save under which the state dictionary lies, where it is not a usual one.
  std::string key = {};
  /// Says whether everything that has a checksum is read once before the first change, so that a damaged file
  /// changes nothing; false: read once, and a damaged file is an error in the middle.
  bool verify_first = true;
  /// Names the model-parallel rank whose part of the layers a checkpoint's folder gives, where ranks have cut
  /// them; files of weights hold one part, and it says nothing of them.
  std::optional<int> mp_rank = {};
};

/// Says what was loaded, and what strict = false left out.
struct LoadedWeights {
  std::vector<std::string> loaded;      // names in the model
  std::vector<std::string> missing;     // names in the model that the files lack
  std::vector<std::string> unexpected;  // names in the files that the model lacks
};

}  // namespace deepspeed::checkpoint
