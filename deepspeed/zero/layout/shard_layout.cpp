#include "deepspeed/zero/layout/shard_layout.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

ShardLayout::ShardLayout(const std::vector<int64_t>& numels, int world_size, int64_t sub_group_numel)
    : world_size_(world_size), numels_(numels) {
  if (world_size < 1) raise<UsageError>("world size ", world_size, ", expected at least 1");
  if (sub_group_numel < 0) {
    raise<UsageError>("sub_group_size ", sub_group_numel, ", expected 0 or more elements");
  }
  int64_t end = 0;
  for (size_t index = 0; index < numels.size(); ++index) {
    if (numels[index] < 0)
      raise<UsageError>("parameter ", index, " has ", numels[index], " elements, expected 0 or more");
    const int64_t shard = deepspeed::shard_numel(numels[index], world_size);
    place_.push_back({end, end + shard});
    end += shard;
    numel_ += numels[index];
  }
  make_sub_groups(sub_group_numel);
}

void ShardLayout::make_sub_groups(int64_t sub_group_numel) {
  bool is_open = false;
  for (size_t index = 0; index < place_.size(); ++index) {
    if (!is_open) sub_groups_.push_back({{place_[index].begin, place_[index].begin}, index, 0});
    SubGroup& current = sub_groups_.back();
    current.in_flat.end = place_[index].end;
    ++current.num_params;
    is_open = current.in_flat.numel() < sub_group_numel || sub_group_numel >= flat_numel();
  }
}

Interval ShardLayout::elements(size_t index, int rank) const {
  return shard_elements(numels_[index], world_size_, rank);
}

int64_t ShardLayout::padding(size_t index, int rank) const {
  return shard_numel(index) - elements(index, rank).numel();
}

std::vector<ParamPiece> ShardLayout::pieces(const Interval& interval, int rank) const {
  std::vector<ParamPiece> result;
  const auto first = std::ranges::upper_bound(place_, interval.begin, {}, &Interval::end);
  for (auto index = static_cast<size_t>(first - place_.begin()); index < place_.size(); ++index) {
    if (place_[index].begin >= interval.end) break;
    const Interval held = elements(index, rank);
    const int64_t begin = place_[index].begin;
    const Interval common = intersect({begin, begin + held.numel()}, interval);
    if (common.empty()) continue;
    result.push_back({index,
                      {common.begin - interval.begin, common.end - interval.begin},
                      held.begin + common.begin - begin});
  }
  return result;
}

}  // namespace deepspeed::zero
