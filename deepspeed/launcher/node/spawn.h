// Starts the process of one rank.
#pragma once

#include <csignal>
#include <string>

#include <sys/types.h>

#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

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
