// The program ds_node, which runs on each machine of a job.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// Runs the program `ds_node` with `words`, which follow its name, and returns the exit code:
///
///     --link                 the link is standard input and output (of ssh)
///     --deposit ID           keeps the job's description, which standard input tells, until that ends
///     --job ID --node N      waits for that description and connects to the launcher (under pdsh)
///     --rank RUNNER          takes description and rank from the variables of MPI or Slurm, and connects
///     --end PROCESS          kills what a program of this kind, which may hang, has started, and that
///     program
///     --version
///
/// A link that ends, or is silent for longer than DS_LINK_TIMEOUT, is the end of all processes that this one
/// has started.
DEEPSPEED_API int run_node_program(const std::vector<std::string>& words);

}  // namespace deepspeed::launcher
