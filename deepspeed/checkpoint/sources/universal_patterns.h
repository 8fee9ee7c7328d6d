// Patterns over names say how training in tensor parallel cuts parameters: the `universal_checkpoint_info` of
// a model file. A universal checkpoint notes it beside each parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Holds the entries that stand beside the tensor of a parameter in its file.
struct UniversalMarks {
  Dict marks = {};                             // "cat_dim", ...
  std::optional<int64_t> rows = std::nullopt;  // rows of a vocabulary: the rest is padding and stays out
};

class UniversalPatterns {
 public:
  /// Reads the patterns. `info`: a dict, or None. Throws CheckpointError for patterns that cannot be read,
  /// NotSupportedError for those of parameters made of several.
  explicit UniversalPatterns(const Value& info);

  /// Returns a parameter's marks. Throws CheckpointError where two patterns of a kind fit the name.
  UniversalMarks marks_of(const std::string& parameter);
  /// Returns the patterns that fitted no name so far.
  std::vector<std::string> unused() const;

 private:
  struct Pattern {
    std::string text;
    bool used = false;
  };
  using Patterns = std::vector<Pattern>;

  static Patterns patterns_of(const Value& info, const char* key);
  static bool match(Patterns& patterns, const std::string& parameter);

  Patterns replicated_, averaged_, two_parts_, rows_, vocabulary_;
  int64_t vocabulary_size_ = 0;
};

}  // namespace deepspeed::checkpoint
