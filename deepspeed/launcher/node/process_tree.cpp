#include "deepspeed/launcher/node/process_tree.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;

/// Lists all processes, by /proc/<pid>/stat: "pid (name) state ppid pgrp ...", where the name may hold
/// anything.
std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> processes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto pid = parse_whole_number(entry.path().filename().string());
    if (!pid) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) continue;  // it has ended since
    char state = 0;
    ProcessEntry process{*pid, 0, 0};
    if (std::sscanf(line.c_str() + name_end + 1, " %c %d %d", &state, &process.parent, &process.group) != 3)
      continue;
    processes.push_back(process);
  }
  return processes;
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    raise<IoError>("cannot adopt orphaned processes: ", std::strerror(errno));
  }
}

std::vector<ProcessEntry> descendants() {
  const auto all = all_processes();
  std::set<pid_t> family = {::getpid()};
  std::vector<ProcessEntry> found;
  // Parents may stand after their children in /proc, so passes repeat until one finds no new process.
  for (bool more = true; more;) {
    more = false;
    for (const ProcessEntry& process : all) {
      if (family.count(process.parent) == 0 || !family.insert(process.pid).second) continue;
      found.push_back(process);
      more = true;
    }
  }
  return found;
}

std::vector<ProcessEntry> kill_descendants(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = descendants();
    for (const ProcessEntry& process : left) ::kill(process.pid, SIGKILL);
    pid_t reaped = 0;
    do {
      reaped = ::waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    if (reaped < 0 && errno == ECHILD) return {};
    if (std::chrono::steady_clock::now() > deadline) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace deepspeed::launcher
