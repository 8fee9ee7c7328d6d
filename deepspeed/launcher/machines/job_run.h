// One start of a job on several machines, seen from where the job is started.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/node/node_launch.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

/// The job as it was asked for.
struct MachineJob {
  LaunchArgs args;
  std::vector<std::string> words;  ///< of the command line
  std::string hostfile;            ///< the file that has named the machines; empty without one
  Machine machine;                 ///< this one
  Environment environment;         ///< of the runner
  Environment exports;             ///< of all ranks
  std::string node_program;        ///< the path of ds_node, alike on all machines
  /// How many machines to use of those that answer, the first ones: given how many ranks each has, returns a
  /// number; 0 where none fits. Empty: all, and one that does not answer is an error.
  std::function<size_t(const ResourcePool&)> choose_machines;
  std::vector<std::string> doubtful_hosts;  ///< lost before: they are waited for some seconds only
  bool checks_hosts = false;                ///< by ssh, where MPI starts the programs
};

/// How a start ended.
struct JobEnd {
  int exit_code = 0;
  bool is_failure_of_run = false;  ///< ranks ran, and one of them or a machine failed: it may start again
  std::vector<std::string> lost_hosts;
};

/// Starts the ranks of `nodes` and returns once none is left on any machine that can be reached. Standard
/// output is the ranks'. What goes wrong is a line of the log that names host and rank.
JobEnd run_on_machines(const MachineJob& job, const ResourcePool& nodes, int restarts,
                       const BlockedSignals& signals);

}  // namespace deepspeed::launcher
