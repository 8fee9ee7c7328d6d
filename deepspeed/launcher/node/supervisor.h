// The parent of the ranks: passes their errors through, forwards signals, and ends all of them when one
// fails.
#pragma once

#include <csignal>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Runs the supervisor's process, which was just forked, to its end: starts the ranks and returns the exit
/// code of the launch once no process is left. `launcher_fd` reads end-of-file when the launcher has
/// vanished, and a byte now and then where NodeLaunch::parent_silence says so; `watched` are the signals that
/// are blocked and forwarded. Never throws.
int run_supervisor(const NodeLaunch& launch, int launcher_fd, const sigset_t& watched,
                   const SignalState& rank_signals) noexcept;

}  // namespace deepspeed::launcher
