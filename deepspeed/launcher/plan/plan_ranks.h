// The commands and variables of the ranks that one machine runs.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

class PortClaim;

/// The arguments, variables, cores and log file of one rank.
struct RankCommand {
  int rank = 0;
  std::vector<std::string> args;  ///< all after the program's path
  Environment environment;
  std::vector<int> cores;  ///< to bind to; empty: wherever the launcher may run
  std::string log_file;    ///< for its output and errors; empty: passed through
};

/// Describes the ranks to start on one machine, and how they are watched and ended.
struct NodeLaunch {
  std::string program;  ///< a path, see find_program
  std::vector<RankCommand> ranks;
  std::shared_ptr<PortClaim> port_claim;  ///< keeps other launchers from the port at which the ranks meet
  std::string pid_file;                   ///< keeps the caller's process id while the ranks run; empty: none
  std::chrono::milliseconds stop_grace{4000};  ///< between asking processes to end and SIGKILL
  /// The time between a signal to the launcher and SIGKILL. Ranks that catch the signal may save first.
  std::chrono::milliseconds signal_grace{30000};
  /// Where the supervisor writes Beat, Failed and Stopped (link/messages.h) instead of announcing failures;
  /// -1: it announces.
  int report_fd = -1;
  /// How long the supervisor's parent may write no byte into its pipe before it counts as gone, and a rank
  /// that somebody has stopped before it counts as failed; 0: for ever.
  std::chrono::milliseconds parent_silence{0};
};

/// Finds the program, shares the cores out, makes the folder for logs, and returns a command for each of
/// `places`, which are ranks of the machine that `node` describes. `environment` is what ranks start with.
/// Throws ProgramError for a program that cannot be run, UsageError naming the flag, IoError for the folder.
NodeLaunch plan_ranks(const LaunchArgs& args, const Machine& machine, const Environment& environment,
                      NodeEnvironment node, const std::vector<RankPlace>& places);

/// Sets where the ranks meet, which is known last.
void set_meeting(NodeLaunch& launch, const std::string& address, int port);

}  // namespace deepspeed::launcher
