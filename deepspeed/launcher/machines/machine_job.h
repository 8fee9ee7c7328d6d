// Describes a job over machines, and how a start of it ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

/// Describes a job over machines, as the user asked for it.
struct MachineJob {
  LaunchArgs args;
  std::vector<std::string> words;  ///< the command line
  std::string hostfile;            ///< the file that lists the machines; empty if there is none
  Machine machine;                 ///< this machine
  Environment environment;         ///< for the runner
  Environment exports;             ///< variables for all ranks
  std::string node_program;        ///< the path of ds_node on every machine
  /// Returns how many of the answering machines to use, 0 if no number fits. The first ones in the hostfile's
  /// order are used. If unset, all machines are used, and a machine that does not answer is an error.
  std::function<size_t(const ResourcePool&)> choose_machines;
  std::vector<std::string> doubtful_hosts;  ///< lost in an earlier start; they have only seconds to answer
  bool checks_hosts = false;                ///< checks hosts by ssh if MPI starts the programs
};

/// Describes how one start of the job ended.
struct JobEnd {
  int exit_code = 0;
  bool is_failure_of_run = false;  ///< a rank or a machine failed while ranks ran; the job may restart
  std::vector<std::string> lost_hosts;
};

}  // namespace deepspeed::launcher
