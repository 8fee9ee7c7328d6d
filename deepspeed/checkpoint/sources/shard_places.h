// In the optimizer files of stage 3 each parameter is padded by itself to a multiple of the ranks and cut
// into equal shards. Those of a rank lie one after the other in the flat tensors of its file, one a
// sub-group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"

namespace deepspeed::checkpoint {

/// Says where one parameter's shard lies, alike on every rank.
struct ShardPlace {
  size_t sub_group = 0;
  int64_t begin = 0;  // in its flat tensor
};

/// Finds the place of each parameter's shard. numels: elements of the parameters of all groups, in order;
/// sub_groups: elements of a rank's flat tensors. Throws CheckpointError, naming `file`, where they do not
/// fit together.
std::vector<ShardPlace> place_shards(const std::vector<int64_t>& numels,
                                     const std::vector<int64_t>& sub_groups, int64_t num_ranks,
                                     const std::filesystem::path& file);

using Fragments = std::vector<std::pair<std::string, FragmentAddress>>;

/// Returns the parameters that meet a partition of the flat space, in which they lie one after the other,
/// with their places in the partition.
Fragments fragments_in(const NamedShapes& shapes, const Interval& partition);

/// Throws CheckpointError, naming the file, where a rank's file of stage 1 or 2 says that it holds what is
/// another rank's part of a group: files that changed places. `ranks`: as the files say it; `file`: of a
/// rank.
void require_own_parts(const NamedShapes& shapes, size_t group, const std::vector<ZeroOptimizerStates>& ranks,
                       const std::function<std::filesystem::path(size_t rank)>& file);

}  // namespace deepspeed::checkpoint
