// Processes that the launcher starts here to reach other machines: ssh, pdsh, mpirun, srun.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

struct Child {
  pid_t pid = 0;
  int input = -1;   ///< write end of its standard input; -1: it reads nothing
  int output = -1;  ///< read end of its standard output; -1: it has this process's
};

/// Starts words[0], which PATH of `environment` finds, as the leader of its own process group, so that a
/// terminal's signals do not reach it. It gets `death_signal` when this process ends. Throws UsageError where
/// the program is missing.
Child start_child(const std::vector<std::string>& words, const Environment& environment, bool has_pipes,
                  int death_signal, const SignalState& signals);

/// Returns what a child writes and its exit status (of waitpid()) once it has ended, -1 where that takes
/// longer than `patience_ms`; then it is killed.
std::pair<std::string, int> finish_child(Child& child, int patience_ms);

/// Waits until children have ended: asks them once `patience` is over (SIGTERM), and kills them after as long
/// again.
void end_children(std::vector<pid_t> children, std::chrono::seconds patience);

}  // namespace deepspeed::launcher
