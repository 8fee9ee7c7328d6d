// Starts the process of one rank.
#pragma once

#include <csignal>
#include <string>

#include <sys/types.h>

#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

struct SpawnedRank {
  pid_t pid = 0;
  int stderr_fd = -1;  ///< non-blocking read end of its standard error; -1 with a log file
};

/// Holds the signal settings with which ranks start: those from before the launcher changed them.
struct SignalState {
  sigset_t mask;
  bool pipe_ignored = false;
};

/// Returns the current signal settings.
SignalState current_signals();

/// Starts `program` as the leader of its own process group. The rank gets SIGKILL when this thread's process
/// ends. Rank 0 keeps the launcher's standard input, the others get none. Throws IoError naming the rank and
/// the step that failed.
SpawnedRank spawn_rank(const std::string& program, const RankCommand& command, const SignalState& signals);

}  // namespace deepspeed::launcher
