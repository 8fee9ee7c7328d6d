#include "deepspeed/launcher/node/oom_watch.h"

#include <fstream>

#include "deepspeed/base/message.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;
constexpr auto kRefreshInterval = std::chrono::seconds(30);

/// Reads the number after `oom_kill`, if there, in a file of "name value" lines.
std::optional<int64_t> read_oom_kill(const fs::path& path) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

/// Reads this process's counter; nothing without one. Lines of /proc/self/cgroup read "id:controllers:path".
/// Version 2 has id 0 and no controllers. A container may see its own group as the root of the mount, which
/// is the second place to look.
std::optional<int64_t> read_cgroup_counter(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const bool version2 = parts[0] == "0" && parts[1].empty();
    if (!version2 && parts[1] != "memory") continue;
    const fs::path mount = root / (version2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* counter_file = version2 ? "memory.events" : "memory.oom_control";
    const std::string group = parts[2].substr(parts[2].find_first_not_of('/') == std::string::npos
                                                  ? parts[2].size()
                                                  : parts[2].find_first_not_of('/'));
    for (const fs::path& folder : {mount / group, mount}) {
      if (const auto count = read_oom_kill(folder / counter_file)) return count;
    }
  }
  return std::nullopt;
}

bool grew(const std::optional<int64_t>& before, const std::optional<int64_t>& after) {
  return before && after && *after > *before;
}

}  // namespace

OomCounters read_oom_counters(const fs::path& root) {
  return {read_cgroup_counter(root), read_oom_kill(root / "proc/vmstat")};
}

std::string explain_sigkill(const OomCounters& before, const OomCounters& after) {
  if (grew(before.cgroup, after.cgroup)) {
    return message("out of memory: the kernel's out-of-memory killer acted in this control group (oom_kill ",
                   *before.cgroup, " -> ", *after.cgroup,
                   "); lower the batch size, use a higher ZeRO stage or raise the group's memory limit");
  }
  if (grew(before.machine, after.machine)) {
    return message("out of memory: the kernel's out-of-memory killer acted on this machine (oom_kill ",
                   *before.machine, " -> ", *after.machine,
                   "); lower the batch size, use a higher ZeRO stage or start fewer ranks");
  }
  return "";
}

OomWatch::OomWatch()
    : last_refresh_(std::chrono::steady_clock::now()), older_(read_oom_counters()), newer_(older_) {}

void OomWatch::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_refresh_ < kRefreshInterval) return;
  last_refresh_ = now;
  older_ = newer_;
  newer_ = read_oom_counters();
}

std::string OomWatch::explain() const { return explain_sigkill(older_, read_oom_counters()); }

}  // namespace deepspeed::launcher
