#include "deepspeed/base/log.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::log {
namespace {

std::atomic<int> current_rank{0};

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      break;
  }
  return spdlog::level::off;
}

Level initial_level() {
  const auto name = env::get("DEEPSPEED_LOG_LEVEL");
  return name ? level_from_name(*name) : Level::kInfo;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> level{initial_level()};
  return level;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("deepspeed",
                                                 std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("[%Y-%m-%d %H:%M:%S] [%^%l%$] %v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
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

void write(Level level, const std::string& text, bool on_every_rank) {
  if (level < current_level() || level == Level::kOff) return;
  const int rank = current_rank;
  if (rank != 0 && level < Level::kWarning && !on_every_rank) return;
  logger().log(to_spdlog(level), "[rank {}] {}", rank, text);
}

}  // namespace deepspeed::log
