// The `deepspeed` program as a function.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/machine.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Decides what to start on this machine, from flags, hostfile, machine and this process's variables. Pure,
/// except for the files that it reads, the folder for logs that it makes, and the port that it tries. Throws
/// the errors of its parts.
DEEPSPEED_API NodeLaunch plan_launch(const LaunchArgs& args, const Machine& machine,
                                     const Environment& environment);

/// Runs the program `deepspeed` with `words`, which follow its name, and returns the exit code: that of
/// launch_node(), 0 after --help and --version, 2 for a wrong command line, 127 and 126 for a program that
/// cannot be run, 1 for other errors, each with a line on standard error.
DEEPSPEED_API int run_command(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
