// The program ds_node, which runs on each machine of a job.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// Runs the program `ds_node` with `words`, its arguments. Returns the exit code.
///
///     --link                 uses standard input and output (of ssh) as its link
///     --deposit ID           keeps the job's description from standard input until that input ends
///     --job ID --node N      waits for that description and connects to the launcher (under pdsh)
///     --rank RUNNER          reads description and rank from variables of MPI or Slurm, and connects
///     --end PROCESS          kills another ds_node, which may hang, and all processes below it
///     --version
///
/// If the link ends, or is silent for longer than DS_LINK_TIMEOUT, ds_node kills all processes that it has
/// started.
DEEPSPEED_API int run_node_program(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
