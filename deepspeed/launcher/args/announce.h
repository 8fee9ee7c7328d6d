// Writes the launcher's own lines on standard error: `[time] [level] [launcher] text`. They carry no rank,
// since the launcher is none, and never wait for a slow reader, so that watching the ranks goes on.
#pragma once

#include <string>

#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"

namespace deepspeed::launcher {

/// Writes the line if `level` is at or above log::level().
void announce_line(log::Level level, const std::string& text);
/// Writes a warning at every level of the log but off: the job is another one than was asked for.
void announce_to_all_levels(const std::string& text);

template <class... Parts>
void announce(log::Level level, const Parts&... parts) {
  announce_line(level, message(parts...));
}

}  // namespace deepspeed::launcher
