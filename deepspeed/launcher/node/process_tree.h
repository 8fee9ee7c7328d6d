// Finds the processes below this one, also those whose own parents have ended: the caller is a subreaper.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

namespace deepspeed::launcher {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool has_ended = false;  ///< its parent has not asked for its status yet
};

/// Makes this process the parent of every orphan below it, so that none escapes. Where the system refuses, as
/// an emulator may, says so once: processes below it that have lost their parent then live on.
void become_subreaper();

/// Lists children, grandchildren and so on of this process, also ended ones whose status was not collected
/// yet.
std::vector<ProcessEntry> descendants();
/// Lists those of another process.
std::vector<ProcessEntry> descendants_of(pid_t pid);

/// Names a process so that its number may be used again: "PID:TIME", the time at which it started. "" where
/// it has ended.
std::string process_name(pid_t pid);

/// Sends SIGKILL to the process that process_name() has named, if it still runs, and to all below it, the
/// process itself last, until none is left or `patience` is over. Returns whether none is left.
bool kill_process_tree(const std::string& name, std::chrono::milliseconds patience);

/// How long killed processes may take to go.
constexpr std::chrono::seconds kKillPatience(5);

/// Sends SIGKILL to all descendants and waits for them, until none is left or `patience` is over (a process
/// that waits in a driver cannot be killed). Returns those that are left.
std::vector<ProcessEntry> kill_descendants(std::chrono::milliseconds patience);

}  // namespace deepspeed::launcher
