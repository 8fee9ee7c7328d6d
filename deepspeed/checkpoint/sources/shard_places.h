// Locates shards in the optimizer files of stage 3. Each parameter is padded to a multiple of the number of
// ranks and cut into equal shards. Each rank's file has one flat tensor per sub-group, in which the rank's
// shards lie one after the other.
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

/// Locates one parameter's shard in the flat tensors that a rank saves. The place is the same on every rank.
struct ShardPlace {
  size_t sub_group = 0;
  int64_t begin = 0;  // in the sub-group's flat tensor
};

/// Returns the place of each parameter's shard. `numels` are the element counts of all groups' parameters, in
/// order. `sub_groups` are the element counts of a rank's flat tensors. Throws CheckpointError, naming
/// `file`, if they do not fit together.
std::vector<ShardPlace> place_shards(const std::vector<int64_t>& numels,
                                     const std::vector<int64_t>& sub_groups, int64_t num_ranks,
                                     const std::filesystem::path& file);

using Fragments = std::vector<std::pair<std::string, FragmentAddress>>;

/// Returns the parameters that overlap `partition`, and their parts in it. `partition` is an interval of
/// elements of the group's flat tensor. Addresses count from the begin of `partition`. `shapes` lists the
/// group's parameters in flat order.
Fragments fragments_in(const NamedShapes& shapes, const Interval& partition);

/// Throws CheckpointError if a rank's file of stage 1 or 2 holds another rank's part. Such a file was
/// renamed, or two files changed places. The addresses in a file tell whose part it holds. `shapes` lists the
/// parameters of group `group`. `ranks` has the content of each rank's file, and `file` returns the file's
/// path for the error.
void require_own_parts(const NamedShapes& shapes, size_t group, const std::vector<ZeroOptimizerStates>& ranks,
                       const std::function<std::filesystem::path(size_t rank)>& file);

}  // namespace deepspeed::checkpoint
