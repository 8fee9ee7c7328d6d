// Makes the commands and variables of the ranks that one machine runs.
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

/// Holds the arguments, variables, cores and log file of one rank.
struct RankCommand {
  int rank = 0;
  std::vector<std::string> args;  ///< all that follow the program's path
  Environment environment;
  std::vector<int> cores;  ///< to bind to; empty: those that the launcher may use
  std::string log_file;    ///< for its output and errors; empty: they go to the launcher's
};

/// Describes the ranks to start on one machine, and how they are watched and ended.
struct NodeLaunch {
  std::string program;  ///< the path that find_program() returns
  std::vector<RankCommand> ranks;
  std::shared_ptr<PortClaim> port_claim;  ///< reserves the port at which the ranks meet
  std::string pid_file;  ///< holds the caller's process id while the ranks run; empty: no file
  std::chrono::milliseconds stop_grace{4000};  ///< between the request to end and SIGKILL
  /// The time between a signal to the launcher and SIGKILL. Ranks that catch the signal may save first.
  std::chrono::milliseconds signal_grace{30000};
  /// The supervisor writes the messages Beat, Failed and Stopped to this descriptor (link/messages.h). -1: it
  /// prints failures instead.
  int report_fd = -1;
  /// The supervisor treats its parent as lost if the parent writes nothing for this time. A rank that
  /// somebody has stopped for this time counts as failed. 0: no limit.
  std::chrono::milliseconds parent_silence{0};
};

/// Returns a command for each of `places`, ranks of the machine that `node` describes. Finds the program,
/// assigns cores and makes the folder for logs. `environment` is what ranks start with. Throws ProgramError
/// for a program that cannot run, UsageError naming the flag, and IoError for the folder.
NodeLaunch plan_ranks(const LaunchArgs& args, const Machine& machine, const Environment& environment,
                      NodeEnvironment node, const std::vector<RankPlace>& places);

/// Sets each rank's variables for the address and port at which the ranks meet. In a job over machines these
/// are known only after plan_ranks().
void set_meeting(NodeLaunch& launch, const std::string& address, int port);

}  // namespace deepspeed::launcher
