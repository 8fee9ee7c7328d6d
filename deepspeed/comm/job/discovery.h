// Finds a process's rank in the variables that MPI launchers and Slurm's srun set. Internal to this folder.
#pragma once

#include <optional>
#include <string>

namespace deepspeed::comm {

struct DiscoveredPlace {
  const char* launcher = "";  // "Open MPI"
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::string master_addr;  // of rank 0; "" if the launcher does not tell it
};

/// Returns this process's rank and sizes from a launcher's variables, or nothing. The first launcher that set
/// them counts. The launchers are Open MPI, MVAPICH2, Slurm's srun (also if its plugin sets PMI's variables
/// to the same values), those with PMI (MPICH, Intel MPI and others), and PMIx with WORLD_SIZE. A shell of
/// sbatch or salloc is not a rank. Throws UsageError for a variable that is not a number, and for a rank
/// without a number of ranks.
std::optional<DiscoveredPlace> discover_place();

/// Returns the first host of Slurm's list: "gpu[03-05,9],login1" gives "gpu03". Returns "" for an empty list
/// or an unclosed bracket.
std::string first_slurm_host(const std::string& hosts);

/// Returns the number of tasks on node `node` (from 0) of Slurm's list. "4(x2),3" means 4, 4 and 3. Returns
/// nothing if the list is malformed or shorter.
std::optional<int> slurm_tasks_on_node(const std::string& tasks_per_node, int node);

}  // namespace deepspeed::comm
