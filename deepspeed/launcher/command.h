// The `deepspeed` program as a function.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/machine.h"
#include "deepspeed/launcher/plan/plan_ranks.h"

namespace deepspeed::launcher {

/// Decides what to start on this machine, from flags, hostfile, machine and variables. It only reads files,
/// runs --venv_script, makes the folder for logs, and claims the port. Throws UsageError, ProgramError and
/// IoError.
DEEPSPEED_API NodeLaunch plan_launch(const LaunchArgs& args, const Machine& machine,
                                     const Environment& environment);

/// Runs the program `deepspeed` with `words`, its arguments. Returns launch_node()'s exit code, or 0 after
/// --help and --version. Errors are printed to standard error, and give 2 for a wrong command line, 127 or
/// 126 for a program that cannot run, and 1 otherwise.
DEEPSPEED_API int run_command(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
