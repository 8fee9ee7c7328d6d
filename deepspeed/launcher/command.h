// The `deepspeed` program as a function.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/node/node_launch.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

/// Flags, hostfile, machine and this process's variables put together: what to start. Pure but for the files
/// that it reads, the folder for logs that it makes, and the port that it tries. Throws the errors of its
/// parts.
NodeLaunch plan_launch(const LaunchArgs& args, const Machine& machine, const Environment& environment);

/// `words` follow the program's name. Gives the exit code: that of launch_node, 0 after --help and --version,
/// 2 for a wrong command line, 127 and 126 for a program that cannot be run, 1 for other errors, each with a
/// line on standard error.
int run_command(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
