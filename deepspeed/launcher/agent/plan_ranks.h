// The commands and variables of the ranks that one machine runs.
#pragma once

#include <chrono>
#include <string>
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

/// How long a script that is sourced, or an interpreter that says its version, may take: less than the
/// launcher waits for a machine's plan.
inline constexpr std::chrono::seconds kOutputPatience{120};

/// Returns what an interpreter of Python says to --version, "" where it says nothing. Throws UsageError where
/// it has not ended within `patience`.
std::string python_version(const std::string& interpreter, const Environment& environment,
                           const SignalState& signals, std::chrono::seconds patience = kOutputPatience);

/// Returns the variables that sourcing a script leaves (`. SCRIPT` of bash, or of sh where bash is missing),
/// of a process that starts with `environment`. A leading ~/ is the home folder. Throws UsageError, naming
/// --venv_script, where the script is missing, fails, or has not ended within `patience`; then it is killed.
Environment source_script(const std::string& script, const Environment& environment,
                          const SignalState& signals, std::chrono::seconds patience = kOutputPatience);

}  // namespace deepspeed::launcher
