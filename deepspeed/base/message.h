// Builds a text from parts of any streamable type; the one way in which errors and log lines are put
// together.
#pragma once

#include <sstream>
#include <string>

namespace deepspeed {

/// Joins the parts, one after the other: `message("rank ", 3, " of ", 4)`.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace deepspeed
