// The programs on a job's machines, as the launcher sees them. Each is a part of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/machines/machine_job.h"
#include "deepspeed/launcher/node/child.h"
#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

/// Tells how far a part has come. Each stage includes the stages before it.
enum class Stage { kAwaited, kGreeted, kPlanned, kRunning, kEnded };

/// Describes the program on a machine, or under MPI and Slurm that of one rank.
struct Part {
  std::string host;
  int number = 0;  ///< the machine's number for the runner, or the rank
  Child child;     ///< the ssh process, if the runner is ssh
  std::optional<Channel> link;
  Hello hello;
  std::string address;  ///< the address that it has connected from
  Planned plan;
  Stage stage = Stage::kAwaited;
};

/// Returns an error text if the part has another version of the library, otherwise "".
std::string version_fault(const Part& part, const std::string& node_program);

/// Returns an error text if one part would run the program differently, otherwise "". That part may have
/// another version of Python, or run on the CPU while others have GPUs.
std::string plan_fault(const std::vector<Part>& parts);

/// Returns an error text for a part that has not answered. `end` is how its ssh ended, if it did. `why` is
/// the reason if `end` does not show one.
std::string reason_of_no_answer(const Part& part, const std::string& why,
                                const std::optional<ExitStatus>& end, const MachineJob& job);

/// Assigns ranks to parts.
struct Placement {
  ResourcePool nodes;           ///< the machines, with one slot for each rank
  std::vector<Prepare> orders;  ///< for each part that runs ranks: node, rank and local_rank
  std::string address;          ///< an address of the first machine
};

/// Assigns node i of `nodes` to the i-th part that has answered.
Placement place_on_machines(const std::vector<Part>& parts, const ResourcePool& nodes);

/// Finds how MPI or Slurm placed the ranks. Each part is a rank. Machines, and the ranks on each, are
/// numbered in the order of `parts`.
Placement placement_of_ranks(const std::vector<Part>& parts);

}  // namespace deepspeed::launcher
