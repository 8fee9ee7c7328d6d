// Finds the processes below this one, also those whose own parents have ended: the caller is a subreaper.
#pragma once

#include <chrono>
#include <vector>

#include <sys/types.h>

namespace deepspeed::launcher {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
};

/// Makes this process the parent of every orphan below it, so that none escapes. Throws IoError.
void become_subreaper();

/// Lists children, grandchildren and so on of this process, also ended ones whose status was not collected
/// yet.
std::vector<ProcessEntry> descendants();

/// How long killed processes may take to go.
constexpr std::chrono::seconds kKillPatience(5);

/// Sends SIGKILL to all descendants and waits for them, until none is left or `patience` is over (a process
/// that waits in a driver cannot be killed). Returns those that are left.
std::vector<ProcessEntry> kill_descendants(std::chrono::milliseconds patience);

}  // namespace deepspeed::launcher
