#include "deepspeed/launcher/node/process_tree.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/launcher/args/announce.h"
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
    ProcessEntry process{*pid, 0, 0, false};
    if (std::sscanf(line.c_str() + name_end + 1, " %c %d %d", &state, &process.parent, &process.group) != 3)
      continue;
    process.has_ended = state == 'Z';
    processes.push_back(process);
  }
  return processes;
}

}  // namespace

void become_subreaper() {
  static bool is_said = false;  // forked processes know it, too
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 || std::exchange(is_said, true)) return;
  announce(log::Level::kWarning,
           "this system lets no process adopt orphans (PR_SET_CHILD_SUBREAPER: ", std::strerror(errno),
           "): ranks end with the job, but what a rank has started and left behind may live on");
}

std::vector<ProcessEntry> descendants() { return descendants_of(::getpid()); }

std::vector<ProcessEntry> descendants_of(pid_t pid) {
  const auto all = all_processes();
  std::set<pid_t> family = {pid};
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

std::string process_name(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || line.compare(name_end, 3, ") Z") == 0) return "";
  // The time is the 20th word after the program's name.
  std::istringstream words(line.substr(name_end + 1));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  return std::to_string(pid) + ":" + word;
}

bool kill_process_tree(const std::string& name, std::chrono::milliseconds patience) {
  const auto pid = parse_whole_number(name.substr(0, name.find(':')));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto runs = [](const ProcessEntry& process) { return !process.has_ended; };
  while (pid && *pid > 0 && process_name(*pid) == name) {
    // Orphans of a process below go to one above it, so the top one goes last.
    const auto below = descendants_of(*pid);
    const auto left = std::count_if(below.begin(), below.end(), runs);
    for (const ProcessEntry& process : below) ::kill(process.pid, SIGKILL);
    if (left == 0) ::kill(*pid, SIGKILL);
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
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
