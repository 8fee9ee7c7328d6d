// The commands and variables of the ranks that one machine runs.
#pragma once

#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/node/node_launch.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

/// Finds the program, shares the cores out, makes the folder for logs, and returns a command for each of
/// `places`, which are ranks of the machine that `node` describes. `environment` is what ranks start with.
/// Throws ProgramError for a program that cannot be run, UsageError naming the flag, IoError for the folder.
NodeLaunch plan_ranks(const LaunchArgs& args, const Machine& machine, const Environment& environment,
                      NodeEnvironment node, const std::vector<RankPlace>& places);

/// Sets where the ranks meet, which is known last.
void set_meeting(NodeLaunch& launch, const std::string& address, int port);

/// Returns what an interpreter of Python says to --version, "" where it says nothing.
std::string python_version(const std::string& interpreter, const Environment& environment);

/// Returns the variables that sourcing a script leaves (`. SCRIPT` of bash, or of sh where bash is missing),
/// of a process that starts with `environment`. A leading ~/ is the home folder. Throws UsageError, naming
/// --venv_script, where the script is missing or fails.
Environment source_script(const std::string& script, const Environment& environment);

}  // namespace deepspeed::launcher
