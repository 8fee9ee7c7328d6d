// Reads patterns of names that tell how tensor parallelism cuts parameters: the `universal_checkpoint_info`
// of a model file. A universal checkpoint stores with each parameter how it is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Holds the entries stored with a parameter's tensor in its file.
struct UniversalMarks {
  Dict marks = {};  // "cat_dim", ...
  std::optional<int64_t> rows =
      std::nullopt;  // rows of a vocabulary; further rows are padding and are omitted
};

class UniversalPatterns {
 public:
  /// Reads the patterns from `info`, a dict or None. Throws CheckpointError if it has another form. Throws
  /// NotSupportedError if it lists parameters made of several (parameter_with_sub_params), or some that
  /// DeepSpeed's AutoTP does not support.
  explicit UniversalPatterns(const Value& info);

  /// Returns the entries to store with a parameter. Throws CheckpointError if a pattern is invalid, or two of
  /// one kind match the name.
  UniversalMarks marks_of(const std::string& parameter);
  /// Returns the patterns that have not matched any name so far.
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
