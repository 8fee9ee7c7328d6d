// Writes the launcher's own lines to standard error: `[time] [level] [launcher] text`. They name no rank.
// Writing never waits for a slow reader, so that the launcher keeps watching the ranks.
#pragma once

#include <string>

#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"

namespace deepspeed::launcher {

/// Writes the line if `level` is at or above log::level().
void announce_line(log::Level level, const std::string& text);
/// Writes a warning at every log level except off. It is for a job that differs from what the user asked for.
void announce_to_all_levels(const std::string& text);

template <class... Parts>
void announce(log::Level level, const Parts&... parts) {
  announce_line(level, message(parts...));
}

}  // namespace deepspeed::launcher
