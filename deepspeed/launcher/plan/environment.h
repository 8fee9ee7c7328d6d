// The environment variables that every rank starts with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepspeed/launcher/plan/world_layout.h"

namespace deepspeed::launcher {

using Environment = std::map<std::string, std::string>;

/// Reads this process's variables. Unlike env::get() it tells an empty variable from an unset one, which
/// CUDA_VISIBLE_DEVICES needs: empty hides every GPU.
Environment current_environment();

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
