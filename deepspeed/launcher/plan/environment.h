// Where each rank runs, and the environment variables that it starts with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

struct RankPlace {
  int rank = 0;        ///< number in the whole world
  int local_rank = 0;  ///< number on its machine
  int slot = 0;        ///< the slot (GPU) of its machine
};

/// Numbers the ranks: host by host, and on each host slot by slot.
struct WorldLayout {
  ResourcePool nodes;

  int world_size() const;
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  /// Returns the number of ranks on a node. Throws UsageError for a node that does not exist.
  int local_size(int node) const;
  std::vector<RankPlace> ranks_of(int node) const;
};

using Environment = std::map<std::string, std::string>;

/// Reads this process's variables. Unlike env::get() it tells an empty variable from an unset one. An empty
/// CUDA_VISIBLE_DEVICES hides every GPU.
DEEPSPEED_API Environment current_environment();

/// Returns the value of a variable, or `otherwise` if it is unset or empty.
std::string value_of(const Environment& environment, const std::string& name,
                     const std::string& otherwise = "");

/// The search path for programs if PATH is unset.
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

/// Returns whether DS_ACCELERATOR puts the ranks on the CPU. Then --num_gpus counts ranks.
bool runs_on_cpu(const Environment& environment);

/// Holds the settings that the ranks of one machine share.
struct NodeEnvironment {
  WorldLayout layout;
  int node = 0;
  std::string master_addr;
  int master_port = 0;
  std::vector<std::string> devices;  ///< CUDA_VISIBLE_DEVICES of every rank, in slot order; empty on the CPU
  int threads_per_rank = 1;          ///< OMP_NUM_THREADS unless the user has set it
};

/// Returns `base` with the variables of one rank added.
Environment rank_environment(const Environment& base, const NodeEnvironment& node, const RankPlace& place);

/// Returns max(1, cores / local ranks).
int threads_per_rank(int num_cores, int num_local_ranks);

}  // namespace deepspeed::launcher
