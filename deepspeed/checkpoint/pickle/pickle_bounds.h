// Sets limits for reading and writing pickles: the nesting of values, and the length of class and function
// names.
#pragma once

#include <cstddef>
#include <string>

namespace deepspeed::checkpoint {

/// Limits how deeply values may nest.
inline constexpr int kMaxPickleDepth = 200;

/// Limits the name of a module, class or function, in bytes.
inline constexpr size_t kMaxPickleName = 1000;

/// Returns whether `name` can be the name of a module, or a name in one.
inline bool is_pickle_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxPickleName && name.find('\n') == std::string::npos;
}

}  // namespace deepspeed::checkpoint
