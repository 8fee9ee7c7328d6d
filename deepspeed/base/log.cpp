#include "deepspeed/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::log {
namespace {

std::atomic<int> current_rank{0};

struct Word {
  const char* text;
  const char* color;  // the terminal's: cyan, green, bold yellow, bold red
};

Word word_of(Level level) {
  switch (level) {
    case Level::kDebug:
      return {"debug", "\033[36m"};
    case Level::kInfo:
      return {"info", "\033[32m"};
    case Level::kWarning:
      return {"warning", "\033[33m\033[1m"};
    case Level::kError:
    case Level::kOff:
      break;
  }
  return {"error", "\033[31m\033[1m"};
}

Level initial_level() {
  const auto name = env::get("DEEPSPEED_LOG_LEVEL");
  return name ? level_from_name(*name) : Level::kInfo;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> level{initial_level()};
  return level;
}

bool is_colored() {
  static const bool result = ::isatty(STDERR_FILENO) == 1 && env::get("TERM").value_or("dumb") != "dumb";
  return result;
}

/// Writes the line in one call. Lines of other threads and ranks then do not mix in.
void write_to_stderr(Level level, const std::string& line) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  char time[64];
  time[std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &local)] = '\0';
  const auto [text, color] = word_of(level);
  const std::string whole = is_colored() ? message("[", time, "] [", color, text, "\033[m] ", line, "\n")
                                         : message("[", time, "] [", text, "] ", line, "\n");
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

/// Holds the program's sink. It is never destroyed, since threads may log while the process ends.
struct SinkHolder {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink = std::make_shared<const Sink>();
};

SinkHolder& sink_holder() {
  static auto* const holder = new SinkHolder;
  return *holder;
}

/// Returns the current sink. Call it without holding a lock, since a sink may wait for other threads.
std::shared_ptr<const Sink> current_sink() {
  SinkHolder& holder = sink_holder();
  const std::lock_guard lock(holder.mutex);
  return holder.sink;
}

/// Returns whether the sink took the line. It does not if there is none, if it throws, and for lines that it
/// logs itself.
bool give_to_sink(Level level, const std::string& line) {
  thread_local bool is_inside = false;
  const auto sink = current_sink();
  if (!*sink || is_inside) return false;
  is_inside = true;
  bool is_taken = true;
  try {
    (*sink)(level, line);
  } catch (...) {
    is_taken = false;
  }
  is_inside = false;
  return is_taken;
}

}  // namespace

Level level_from_name(const std::string& name) {
  const std::string lower = lowercase(name);
  if (lower == "debug") return Level::kDebug;
  if (lower == "info") return Level::kInfo;
  if (lower == "warning" || lower == "warn") return Level::kWarning;
  if (lower == "error" || lower == "critical") return Level::kError;
  if (lower == "off") return Level::kOff;
  raise<UsageError>("unknown log level '", name, "', expected debug, info, warning, error, critical or off");
}

void set_level(Level level) { current_level() = level; }
Level level() { return current_level(); }
void set_rank(int rank) { current_rank = rank; }

Sink set_sink(Sink sink) {
  auto held = std::make_shared<const Sink>(std::move(sink));
  SinkHolder& holder = sink_holder();
  {
    const std::lock_guard lock(holder.mutex);
    holder.sink.swap(held);
  }
  return *held;
}

void write(Level level, const std::string& text, bool on_every_rank) {
  if (level < current_level() || level == Level::kOff) return;
  const int rank = current_rank;
  // All ranks have the same config (engine/guards/rank_agreement.h), so only one of them reports on it.
  const bool is_common =
      level < Level::kWarning || (level == Level::kWarning && text.starts_with("[config] "));
  if (rank != 0 && is_common && !on_every_rank) return;
  const std::string line = message("[rank ", rank, "] ", text);
  if (!give_to_sink(level, line)) write_to_stderr(level, line);
}

}  // namespace deepspeed::log
