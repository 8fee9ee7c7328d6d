// Which rank sits where, which is pure arithmetic over the hosts and their slots, and the environment
// variables that it starts with.
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

/// Counts ranks over the hosts in order, and on each host over its slots in order.
struct WorldLayout {
  ResourcePool nodes;

  int world_size() const;
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  /// The number of ranks on a node. Throws UsageError for a node that does not exist.
  int local_size(int node) const;
  std::vector<RankPlace> ranks_of(int node) const;
};

using Environment = std::map<std::string, std::string>;

/// Reads this process's variables. Unlike env::get() it tells an empty variable from an unset one, which
/// CUDA_VISIBLE_DEVICES needs: empty hides every GPU.
DEEPSPEED_API Environment current_environment();

/// Returns the value of a variable, or `otherwise` if it is unset or empty.
std::string value_of(const Environment& environment, const std::string& name,
                     const std::string& otherwise = "");

/// Where programs are looked for if PATH is unset.
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

/// Returns whether DS_ACCELERATOR says that ranks run on the CPU. Then what counts GPUs counts ranks.
bool runs_on_cpu(const Environment& environment);

/// The settings that the ranks of one machine have in common.
struct NodeEnvironment {
  WorldLayout layout;
  int node = 0;
  std::string master_addr;
  int master_port = 0;
  std::vector<std::string> devices;  ///< CUDA_VISIBLE_DEVICES of every rank, in slot order; empty on the CPU
  int threads_per_rank = 1;          ///< OMP_NUM_THREADS where the user has not set it
};

/// Adds the variables of one rank to `base`.
Environment rank_environment(const Environment& base, const NodeEnvironment& node, const RankPlace& place);

/// Returns max(1, cores / local ranks).
int threads_per_rank(int num_cores, int num_local_ranks);

}  // namespace deepspeed::launcher
