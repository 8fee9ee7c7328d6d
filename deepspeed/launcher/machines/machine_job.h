// A job over machines as it was asked for, and how a start of it ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

/// Describes a job as it was asked for.
struct MachineJob {
  LaunchArgs args;
  std::vector<std::string> words;  ///< of the command line
  std::string hostfile;            ///< the file that has named the machines; empty without one
  Machine machine;                 ///< this one
  Environment environment;         ///< of the runner
  Environment exports;             ///< of all ranks
  std::string node_program;        ///< the path of ds_node, which is the same on all machines
  /// Returns how many machines to use, the first of those that answer, of which it is given; 0 if no number
  /// fits. Empty: all are used, and one that does not answer is an error.
  std::function<size_t(const ResourcePool&)> choose_machines;
  std::vector<std::string> doubtful_hosts;  ///< lost before; they get only some seconds to answer
  bool checks_hosts = false;                ///< by ssh, if MPI starts the programs
};

/// Describes how a start ended.
struct JobEnd {
  int exit_code = 0;
  bool is_failure_of_run = false;  ///< ranks ran, and one of them or a machine failed: it may start again
  std::vector<std::string> lost_hosts;
};

}  // namespace deepspeed::launcher
