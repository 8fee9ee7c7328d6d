// Finds the processes below this one, even if their own parents have ended. For that, the caller is a
// subreaper.
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
  bool has_ended = false;  ///< but its parent has not collected its status
};

/// Makes this process the parent of every orphan below it, so that none escapes. If the system refuses, as an
/// emulator may, the function logs this once, and orphans may outlive this process.
void become_subreaper();

/// Lists all processes below this one. The list includes ended processes whose status is still to be
/// collected.
std::vector<ProcessEntry> descendants();
/// Lists the processes below another process.
std::vector<ProcessEntry> descendants_of(pid_t pid);

/// Names a process uniquely, even if its number is used again. The name is "PID:TIME" with its start time, or
/// "" if it has ended.
std::string process_name(pid_t pid);

/// Kills the process that process_name() has named, and all below it. The named process gets SIGKILL last.
/// SIGKILL is repeated until no process is left or `patience` is over. Returns whether none is left.
bool kill_process_tree(const std::string& name, std::chrono::milliseconds patience);

/// Limits the wait for killed processes to end.
constexpr std::chrono::seconds kKillPatience(5);

/// Kills all descendants and waits for them, at most for `patience`. A process that waits in a driver cannot
/// be killed. Returns those that are left.
std::vector<ProcessEntry> kill_descendants(std::chrono::milliseconds patience);

}  // namespace deepspeed::launcher
