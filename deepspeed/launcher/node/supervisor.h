// The parent of the ranks. It copies their errors, forwards signals, and ends all ranks when one fails.
#pragma once

#include <csignal>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Runs the supervisor in its own process, which was just forked. It starts the ranks and returns the
/// launch's exit code once no process is left. `launcher_fd` is a pipe that reaches its end when the launcher
/// has vanished. With NodeLaunch::parent_silence the launcher also writes a byte there now and then.
/// `watched` are the signals that are blocked and forwarded. Never throws.
int run_supervisor(const NodeLaunch& launch, int launcher_fd, const sigset_t& watched,
                   const SignalState& rank_signals) noexcept;

}  // namespace deepspeed::launcher
