// These bounds hold for what is written and for what is read: the depth of values inside of each other, and
// the names of classes and functions.
#pragma once

#include <cstddef>
#include <string>

namespace deepspeed::checkpoint {

/// Is the deepest nesting that is written and read.
inline constexpr int kMaxPickleDepth = 200;

/// Is the length of the longest name of a module, a class or a function.
inline constexpr size_t kMaxPickleName = 1000;

/// Says whether `name` can stand in a pickle as a module's name, or as a name in a module.
inline bool is_pickle_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxPickleName && name.find('\n') == std::string::npos;
}

}  // namespace deepspeed::checkpoint
