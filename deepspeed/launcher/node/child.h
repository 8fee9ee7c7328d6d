// Processes that the launcher starts beside the ranks: ssh, pdsh, mpirun, srun, a shell, an interpreter.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

struct Child {
  pid_t pid = 0;
  Descriptor input;   ///< write end of its standard input; none if it reads nothing
  Descriptor output;  ///< read end of its standard output; none if it has this process's
};

/// Starts words[0], which PATH of `environment` finds, as the leader of its own process group, so that a
/// terminal's signals do not reach it. It gets `death_signal` when this process ends. Throws UsageError where
/// the program is missing.
Child start_child(const std::vector<std::string>& words, const Environment& environment, bool has_pipes,
                  int death_signal, const SignalState& signals);

/// Closes a child's input, and returns what it writes and its exit status (of waitpid()) once it has ended,
/// whoever else holds its output still. The status is -1 where that takes longer than `patience`; then its
/// process group is killed.
std::pair<std::string, int> finish_child(Child child, std::chrono::milliseconds patience);

/// Waits until children have ended: asks them once `patience` is over (SIGTERM), and kills them after as long
/// again. What was below one that had to be asked, in whatever process group, is killed as well.
void end_children(std::vector<pid_t> children, std::chrono::seconds patience);

}  // namespace deepspeed::launcher
