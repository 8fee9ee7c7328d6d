// Builds a text from parts of any streamable type; errors and log lines are all built this way.
#pragma once

#include <sstream>
#include <string>

namespace deepspeed {

/// Joins the parts: `message("rank ", 3, " of ", 4)`.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace deepspeed
