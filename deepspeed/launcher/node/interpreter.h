// Asks other programs before ranks start: a shell sources a script, an interpreter tells its version.
#pragma once

#include <chrono>
#include <string>

#include "deepspeed/launcher/node/spawn.h"
#include "deepspeed/launcher/plan/environment.h"

namespace deepspeed::launcher {

/// Limits the time that a script or an interpreter may take. The launcher waits longer than that for a
/// machine's plan.
inline constexpr std::chrono::seconds kOutputPatience{120};

/// Returns the first line that a Python interpreter prints for --version, or "". Throws UsageError if it
/// takes longer than `patience`.
std::string python_version(const std::string& interpreter, const Environment& environment,
                           const SignalState& signals, std::chrono::seconds patience = kOutputPatience);

/// Returns the variables after sourcing a script in a process that starts with `environment`. It runs `.
/// SCRIPT` in bash, or in sh if bash is missing. A leading ~/ is the home folder. Throws UsageError, naming
/// --venv_script, if the script is missing, fails, or takes longer than `patience`, which kills it.
Environment source_script(const std::string& script, const Environment& environment,
                          const SignalState& signals, std::chrono::seconds patience = kOutputPatience);

}  // namespace deepspeed::launcher
