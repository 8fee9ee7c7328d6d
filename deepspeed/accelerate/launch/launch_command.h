// The command line of `ds_accelerate launch`: Accelerate's flags, then the program and its own arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/accelerate/launch/launch_settings.h"
#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Holds what to do: print `text_to_print` if it is set, otherwise start `flags.program`.
struct ParsedLaunch {
  LaunchFlags flags;
  std::optional<std::string> text_to_print;
};

/// Parses the words after `launch`. Flags may be written with hyphens or underscores. Throws UsageError for
/// an unknown flag and a wrong value, and NotSupportedError, with a way out, for a flag of Accelerate's that
/// this library does not have.
DEEPSPEED_API ParsedLaunch parse_launch(const std::vector<std::string>& words);

/// Returns the file that --config_file names, or the default one if it exists and --cpu is not given.
DEEPSPEED_API std::optional<ClusterConfig> config_of(const LaunchFlags& flags);

/// Runs `launch` with its words. Sets the variables in this process, and returns the exit code of the
/// launcher's run_command().
DEEPSPEED_API int run_launch(const std::vector<std::string>& words);

}  // namespace deepspeed::accelerate
