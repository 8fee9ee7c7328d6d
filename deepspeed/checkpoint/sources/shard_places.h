// In the optimizer files of stage 3 each parameter is padded by itself to a multiple of the ranks and cut
// into equal shards. Those of a rank lie one after the other in the flat tensors of its file, one a
// sub-group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

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

}  // namespace deepspeed::checkpoint
