// The keys that DeepSpeed documents, as reference_keys.txt has them: what each takes, in a small language of
// its own, and values that it must therefore take and refuse.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::config {

struct ReferenceSection {
  std::string path;
  bool auto_is_default = false;
  bool nullable = false;
  bool open = false;
  bool absent = false;  // not printed unless it was given
};

struct ReferenceKey {
  ReferenceSection section;
  std::string key;
  std::string type;  // without what follows
  std::string range;
  std::vector<std::string> choices;
  bool nullable = false;
  bool no_truth_value = false;
  std::optional<Json> default_value;  // of a key that is printed
  bool required = false;

  std::string path() const { return section.path.empty() ? key : section.path + "." + key; }

  /// The words of an error after "expected".
  std::string words() const;
  std::vector<Json> accepted() const;
  std::vector<Json> refused() const;
};

struct Reference {
  std::vector<ReferenceSection> sections;
  std::vector<ReferenceKey> keys;
};

/// The file, read once; a line that cannot be read fails the running test.
const Reference& reference();

}  // namespace deepspeed::config
