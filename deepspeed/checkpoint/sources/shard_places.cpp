#include "deepspeed/checkpoint/sources/shard_places.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/sources/numel_of.h"

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

Fragments fragments_in(const NamedShapes& shapes, const Interval& partition) {
  Fragments fragments;
  int64_t begin = 0;
  for (const auto& [name, sizes] : shapes) {
    const int64_t end = begin + numel_of(sizes);
    const Interval common = intersect({begin, end}, partition);
    if (!common.empty())
      fragments.emplace_back(name, FragmentAddress{common.numel(), common.begin - partition.begin});
    begin = end;
  }
  return fragments;
}

void require_own_parts(const NamedShapes& shapes, size_t group, const std::vector<ZeroOptimizerStates>& ranks,
                       const std::function<std::filesystem::path(size_t rank)>& file) {
  std::vector<Fragments> parts;
  int64_t begin = 0;
  for (const ZeroOptimizerStates& rank : ranks) {
    const PartitionStates& own = rank.groups[group];
    const int64_t end = begin + own.fp32.numel() + own.padding;
    parts.push_back(fragments_in(shapes, {begin, end}));
    begin = end;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    // DeepSpeed's addresses are wrong with round_robin_gradients. They match another rank only if files were
    // swapped.
    const Fragments& said = ranks[rank].groups[group].fragments;
    if (said.empty() || said == parts[rank]) continue;
    const auto other = std::ranges::find(parts, said);
    if (other == parts.end()) continue;
    raise<CheckpointError>(file(rank), " holds the part of rank ", other - parts.begin(),
                           ": it was renamed, or two files changed places");
  }
}

}  // namespace deepspeed::checkpoint
