#include "deepspeed/launcher/args/announce.h"

#include <algorithm>
#include <ctime>
#include <string_view>

#include <poll.h>
#include <unistd.h>

namespace deepspeed::launcher {
namespace {

constexpr int kPatienceMs = 200;
constexpr size_t kPipeChunkBytes = 4096;  // a writable pipe takes this much without waiting

const char* level_name(log::Level level) {
  switch (level) {
    case log::Level::kDebug:
      return "debug";
    case log::Level::kInfo:
      return "info";
    case log::Level::kWarning:
      return "warning";
    default:
      return "error";
  }
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

void write_line(log::Level level, const std::string& text) {
  const std::string line = message("[", time_now(), "] [", level_name(level), "] [launcher] ", text, "\n");
  std::string_view left = line;
  while (!left.empty()) {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&out, 1, kPatienceMs) != 1 || (out.revents & POLLOUT) == 0) return;
    const ssize_t written = ::write(STDERR_FILENO, left.data(), std::min(left.size(), kPipeChunkBytes));
    if (written <= 0) return;
    left.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void announce_line(log::Level level, const std::string& text) {
  if (level >= log::level() && level != log::Level::kOff) write_line(level, text);
}

void announce_to_all_levels(const std::string& text) {
  if (log::level() != log::Level::kOff) write_line(log::Level::kWarning, text);
}

}  // namespace deepspeed::launcher
