// Finds a process's rank from the variables of other launchers.
//
// discover_place() checks the variables of Open MPI, MVAPICH2, PMI together with Slurm, then PMIx. The first
// launcher that set a rank and a size decides; a rank without a size is an error. Slurm's lists give the host
// of rank 0 and the number of tasks on this node.
#include "deepspeed/comm/job/discovery.h"

#include <sstream>
#include <string_view>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::comm {
namespace {

std::optional<int> number(const char* variable) {
  const auto value = env::get_int(variable);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

std::optional<int> first_number(const char* variable, const char* other) {
  const auto value = number(variable);
  return value ? value : number(other);
}

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* other_local_rank;  // used by another implementation for the same value
  const char* other_local_size;
};

constexpr Variables kOpenMpi{"Open MPI",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kMvapich{"MVAPICH2",
                             "MV2_COMM_WORLD_RANK",
                             "MV2_COMM_WORLD_SIZE",
                             "MV2_COMM_WORLD_LOCAL_RANK",
                             "MV2_COMM_WORLD_LOCAL_SIZE",
                             "MV2_COMM_WORLD_LOCAL_RANK",
                             "MV2_COMM_WORLD_LOCAL_SIZE"};
// MPICH's hydra and Intel MPI set MPI_LOCALRANKID, Cray's PALS sets PMI_LOCAL_RANK, and Slurm's plugin pmi2
// neither.
constexpr Variables kPmi{"MPICH or Intel MPI", "PMI_RANK",       "PMI_SIZE",      "MPI_LOCALRANKID",
                         "MPI_LOCALNRANKS",    "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"};

std::optional<DiscoveredPlace> mpi_place(const Variables& variables) {
  const auto rank = number(variables.rank);
  const auto size = number(variables.size);
  if (rank.has_value() != size.has_value()) {
    raise<UsageError>("the variable ", rank ? variables.size : variables.rank, " of ", variables.launcher,
                      " is not set, but ", rank ? variables.rank : variables.size,
                      " is; set both, or auto_mpi_discovery = false");
  }
  if (!rank) return std::nullopt;
  return DiscoveredPlace{variables.launcher,
                         *rank,
                         *size,
                         first_number(variables.local_rank, variables.other_local_rank),
                         first_number(variables.local_size, variables.other_local_size),
                         ""};
}

// SLURM_STEP_NUM_TASKS is set only for tasks of srun; SLURM_PROCID also in the shells of sbatch and salloc.
std::optional<DiscoveredPlace> slurm_place() {
  const auto rank = number("SLURM_PROCID");
  const auto size = number("SLURM_STEP_NUM_TASKS");
  if (!rank || !size) return std::nullopt;
  DiscoveredPlace place{"Slurm", *rank, *size, number("SLURM_LOCALID"), std::nullopt, ""};
  const auto tasks = env::get("SLURM_STEP_TASKS_PER_NODE");
  const auto node = number("SLURM_NODEID");
  if (tasks && node) place.local_size = slurm_tasks_on_node(*tasks, *node);
  const auto hosts = env::get("SLURM_STEP_NODELIST");
  place.master_addr = first_slurm_host(hosts ? *hosts : env::get("SLURM_JOB_NODELIST").value_or(""));
  return place;
}

// srun also sets the variables of PMI if its plugin is pmi2. Within a Slurm job, mpiexec starts one helper
// per node by srun, and its ranks inherit the helper's variables. The two then disagree, and mpiexec's apply.
std::optional<DiscoveredPlace> pmi_or_slurm_place() {
  const auto pmi = mpi_place(kPmi);
  auto slurm = slurm_place();
  if (!pmi || !slurm) return pmi ? pmi : slurm;
  if (pmi->rank != slurm->rank || pmi->world_size != slurm->world_size) return pmi;
  if (pmi->local_rank) slurm->local_rank = pmi->local_rank;
  if (pmi->local_size) slurm->local_size = pmi->local_size;
  return slurm;
}

// PMIx tells the rank in a variable, but the number of ranks only through its library.
std::optional<DiscoveredPlace> pmix_place() {
  const auto rank = number("PMIX_RANK");
  if (!rank) return std::nullopt;
  const auto size = number("WORLD_SIZE");
  if (!size) {
    raise<UsageError>("the variable PMIX_RANK is ", *rank,
                      ", but none tells the number of ranks; set WORLD_SIZE for all of them, or "
                      "auto_mpi_discovery = false for a world of one");
  }
  return DiscoveredPlace{"PMIx", *rank, *size, std::nullopt, std::nullopt, ""};
}

}  // namespace

std::optional<DiscoveredPlace> discover_place() {
  if (auto place = mpi_place(kOpenMpi)) return place;
  if (auto place = mpi_place(kMvapich)) return place;
  if (auto place = pmi_or_slurm_place()) return place;
  return pmix_place();
}

std::string first_slurm_host(const std::string& hosts) {
  std::string host;
  for (size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      host += hosts[i];
      continue;
    }
    const auto end = hosts.find_first_of(",-]", i + 1);
    const auto close = hosts.find(']', i + 1);
    if (close == std::string::npos) return "";
    host += hosts.substr(i + 1, end - i - 1);
    i = close;
  }
  return host;
}

std::optional<int> slurm_tasks_on_node(const std::string& tasks_per_node, int node) {
  std::string_view text = tasks_per_node;
  while (!text.empty()) {
    int tasks = 0;
    int times = 1;
    if (!take_number(text, tasks)) return std::nullopt;
    if (take_prefix(text, "(x") && (!take_number(text, times) || !take_prefix(text, ")")))
      return std::nullopt;
    if (node < times) return tasks;
    node -= times;
    if (!text.empty() && !take_prefix(text, ",")) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace deepspeed::comm
