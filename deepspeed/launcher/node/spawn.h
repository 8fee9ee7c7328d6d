// Starts the process of one rank.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// The arguments, variables, cores and log file of one rank.
struct RankCommand {
  int rank = 0;
  std::vector<std::string> args;  ///< all after the program's path
  Environment environment;
  std::vector<int> cores;  ///< to bind to; empty: wherever the launcher may run
  std::string log_file;    ///< for its output and errors; empty: passed through
};

struct SpawnedRank {
  pid_t pid = 0;
  int stderr_fd = -1;  ///< read end of its standard error, not blocking; -1 with a log file
};

/// Holds the signals as they were when the launcher started: a rank starts with these.
struct SignalState {
  sigset_t mask;
  bool pipe_ignored = false;
};

/// Returns the signals as they are now.
SignalState current_signals();

/// Starts `program` as the leader of its own process group. It gets SIGKILL when this thread's process ends.
/// Rank 0 keeps the launcher's standard input, the others read nothing. Throws IoError naming the rank and
/// the step that failed.
SpawnedRank spawn_rank(const std::string& program, const RankCommand& command, const SignalState& signals);

}  // namespace deepspeed::launcher
