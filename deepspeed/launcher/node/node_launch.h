// Runs the ranks of one machine and ends them together. Two processes watch over each other: the caller, and
// a supervisor that it forks and that is the ranks' parent. The supervisor kills everything when the caller
// vanishes; the kernel kills the ranks, and the caller their orphans, when the supervisor vanishes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/launcher/node/port.h"
#include "deepspeed/launcher/node/spawn.h"

namespace deepspeed::launcher {

struct NodeLaunch {
  std::string program;  ///< a path, see find_program
  std::vector<RankCommand> ranks;
  std::shared_ptr<PortClaim> port_claim;  ///< keeps other launchers from the port at which the ranks meet
  std::string pid_file;                   ///< keeps the caller's process id while the ranks run; empty: none
  std::chrono::milliseconds stop_grace{4000};  ///< between asking processes to end and SIGKILL
  /// The time between a signal to the launcher and SIGKILL: ranks that catch it may save first.
  std::chrono::milliseconds signal_grace{30000};
};

/// Runs until no process of the launch is left. Returns 0 where every rank ended with 0, the code of the rank
/// that failed first (128 + signal for a signal), 128 + signal after a signal to the launcher, 126 where a
/// rank could not be started. Call it from a process with one thread.
int launch_node(const NodeLaunch& launch);

}  // namespace deepspeed::launcher
