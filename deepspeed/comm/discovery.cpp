#include "deepspeed/comm/discovery.h"

#include <array>
#include <charconv>
#include <sstream>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

std::optional<int> number(const char* variable) {
  const auto value = env::get_int(variable);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr std::array<Variables, 3> kMpi{{
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};

std::optional<DiscoveredPlace> mpi_place(const Variables& variables) {
  const auto rank = number(variables.rank);
  const auto size = number(variables.size);
  if (rank.has_value() != size.has_value()) {
    raise<UsageError>("comm", "the variable ", rank ? variables.size : variables.rank, " of ",
                      variables.launcher, " is not set, but ", rank ? variables.rank : variables.size,
                      " is; set both, or auto_mpi_discovery = false");
  }
  if (!rank) return std::nullopt;
  return DiscoveredPlace{variables.launcher,           *rank, *size, number(variables.local_rank),
                         number(variables.local_size), ""};
}

// SLURM_STEP_NUM_TASKS is set for the tasks of srun alone; SLURM_PROCID also in the shells of sbatch and
// salloc.
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

bool read_number(std::string_view& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(end - text.data());
  return true;
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::optional<DiscoveredPlace> discover_place() {
  for (const auto& variables : kMpi) {
    if (auto place = mpi_place(variables)) return place;
  }
  return slurm_place();
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
    if (!read_number(text, tasks)) return std::nullopt;
    if (skip(text, "(x") && (!read_number(text, times) || !skip(text, ")"))) return std::nullopt;
    if (node < times) return tasks;
    node -= times;
    if (!text.empty() && !skip(text, ",")) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace deepspeed::comm
