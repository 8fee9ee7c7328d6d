// The programs of a job's machines, as the launcher knows them.
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

/// How far a part has come; each stage includes those before it.
enum class Stage { kAwaited, kGreeted, kPlanned, kRunning, kEnded };

/// The program of a machine, or under MPI and Slurm of a rank.
struct Part {
  std::string host;
  int number = 0;  ///< of the machine in the runner's order, or the rank
  Child child;     ///< what holds its link where the runner is ssh
  std::optional<Channel> link;
  Hello hello;
  std::string address;  ///< from which it has connected
  Planned plan;
  Stage stage = Stage::kAwaited;
};

/// Says what is wrong with the library of a part that has answered: its version is another one than here. ""
/// where nothing is.
std::string version_fault(const Part& part, const std::string& node_program);

/// Names a part that would run the program in another way than the first part: by another version of Python,
/// or on the CPU instead of GPUs. Returns "" if none would.
std::string plan_fault(const std::vector<Part>& parts);

/// Says why a part has not answered: `why`, or what the exit of its ssh tells.
std::string reason_of_no_answer(const Part& part, const std::string& why,
                                const std::optional<ExitStatus>& end, const MachineJob& job);

/// Which ranks a part runs.
struct Placement {
  ResourcePool nodes;           ///< the machines, with a slot a rank
  std::vector<Prepare> orders;  ///< to each part that runs ranks, in order: node, rank and local_rank
  std::string address;          ///< at which the first machine is reached
};

/// Places the ranks of `nodes` on the parts that have answered, in order.
Placement place_on_machines(const std::vector<Part>& parts, const ResourcePool& nodes);

/// Finds where MPI or Slurm have placed the ranks that the parts are: those of one machine are counted in
/// their order.
Placement placement_of_ranks(const std::vector<Part>& parts);

}  // namespace deepspeed::launcher
