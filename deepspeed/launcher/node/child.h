// Processes that the launcher starts besides the ranks: ssh, pdsh, mpirun, srun, a shell, an interpreter.
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
  Descriptor input;   ///< write end of its standard input; unset if it reads nothing
  Descriptor output;  ///< read end of its standard output; unset if it uses this process's
};

/// Starts words[0], found by PATH of `environment`, in its own process group. A terminal's signals do not
/// reach the child. Without `has_pipes` the child reads nothing and writes to this process's output. It
/// starts with the settings in `signals`, and gets `death_signal` when this process ends. Throws ProgramError
/// if the program cannot be run.
Child start_child(const std::vector<std::string>& words, const Environment& environment, bool has_pipes,
                  int death_signal, const SignalState& signals);

/// Closes a child's input, waits for its end, and returns its output and waitpid()'s status. The wait is for
/// the child only: another process may still hold its output. After `patience` the child's process group is
/// killed, and the status is -1.
std::pair<std::string, int> finish_child(Child child, std::chrono::milliseconds patience);

/// Waits until children have ended. After `patience` those left get SIGTERM, and after as long again SIGKILL.
/// Processes below a child that got SIGTERM are killed as well, whatever their process group.
void end_children(std::vector<pid_t> children, std::chrono::seconds patience);

}  // namespace deepspeed::launcher
