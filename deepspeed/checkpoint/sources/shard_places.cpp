#include "deepspeed/checkpoint/sources/shard_places.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"

namespace deepspeed::checkpoint {

std::vector<ShardPlace> place_shards(const std::vector<int64_t>& numels,
                                     const std::vector<int64_t>& sub_groups, int64_t num_ranks,
                                     const std::filesystem::path& file) {
  std::vector<ShardPlace> places;
  ShardPlace next;
  const auto skip_full = [&] {
    while (next.sub_group < sub_groups.size() && next.begin == sub_groups[next.sub_group])
      next = {next.sub_group + 1, 0};
  };
  for (const int64_t numel : numels) {
    const int64_t shard = shard_numel(numel, num_ranks);
    if (shard > 0) skip_full();
    places.push_back(next);
    if (shard == 0) continue;
    if (next.sub_group == sub_groups.size() || shard > sub_groups[next.sub_group] - next.begin) {
      raise<CheckpointError>("the flat tensors of ", file, " end before parameter ", places.size() - 1,
                             " of the model file, whose shard has ", shard, " elements");
    }
    next.begin += shard;
  }
  skip_full();
  if (next.sub_group < sub_groups.size()) {
    raise<CheckpointError>("the flat tensors of ", file,
                           " hold more elements than the parameters of the model file");
  }
  return places;
}

}  // namespace deepspeed::checkpoint
