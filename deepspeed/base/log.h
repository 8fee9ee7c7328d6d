// Writes log lines to standard error, as `[time] [level] [rank N] text`, or to the program's own sink. Only
// rank 0 logs unless a call or the level says otherwise.
#pragma once

#include <functional>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/message.h"

namespace deepspeed::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// Returns the level that a name means (debug, info, warning, error, critical, off; any case). Throws
/// UsageError for any other name.
DEEPSPEED_API Level level_from_name(const std::string& name);

/// Drops lines below `level` from now on. The default is kInfo, or the variable DEEPSPEED_LOG_LEVEL.
DEEPSPEED_API void set_level(Level level);
DEEPSPEED_API Level level();

/// Sets the rank named in the lines. Ranks other than 0 drop debug and info lines made without
/// `on_every_rank`.
DEEPSPEED_API void set_rank(int rank);

/// Receives the lines that would be written: level and `[rank N] text`. Several threads may call it at once.
using Sink = std::function<void(Level, const std::string& line)>;
/// Sends all lines to `sink` instead of standard error, and returns the previous sink. An empty sink means
/// standard error. If the sink throws, the line goes to standard error, and so do lines that the sink itself
/// logs. A call of the previous sink may still be running afterwards.
DEEPSPEED_API Sink set_sink(Sink sink);

/// Writes one line. Errors and warnings are written on every rank, except the config's warnings, "[config]
/// ...", which are equal on all ranks.
DEEPSPEED_API void write(Level level, const std::string& text, bool on_every_rank = false);

template <class... Parts>
void debug(const Parts&... parts) {
  if (level() <= Level::kDebug) write(Level::kDebug, message(parts...));
}
template <class... Parts>
void info(const Parts&... parts) {
  if (level() <= Level::kInfo) write(Level::kInfo, message(parts...));
}
template <class... Parts>
void warning(const Parts&... parts) {
  if (level() <= Level::kWarning) write(Level::kWarning, message(parts...));
}
template <class... Parts>
void error(const Parts&... parts) {
  if (level() <= Level::kError) write(Level::kError, message(parts...));
}

}  // namespace deepspeed::log
