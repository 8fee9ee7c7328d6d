#include "deepspeed/zero/layout/partition.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {
namespace {

// Partitions of 16-bit elements start at 4-byte boundaries, as NCCL requires.
constexpr int64_t kAlignmentPerRank = 2;

std::vector<size_t> flat_order(size_t count, int world_size, bool round_robin) {
  std::vector<size_t> order;
  order.reserve(count);
  const size_t stride = round_robin ? static_cast<size_t>(world_size) : 1;
  for (size_t first = 0; first < stride; ++first) {
    for (size_t index = first; index < count; index += stride) order.push_back(index);
  }
  return order;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<int64_t>& numels, int world_size, bool round_robin)
    : world_size_(world_size), place_(numels.size()) {
  if (world_size < 1) raise<UsageError>("world size ", world_size, ", expected at least 1");
  for (const size_t index : flat_order(numels.size(), world_size, round_robin)) {
    if (numels[index] < 0) {
      raise<UsageError>("parameter ", index, " has ", numels[index], " elements, expected 0 or more");
    }
    place_[index] = {numel_, numel_ + numels[index]};
    params_.push_back({index, place_[index]});
    numel_ = place_[index].end;
  }
  const int64_t alignment = kAlignmentPerRank * world_size;
  padded_numel_ = (numel_ + alignment - 1) / alignment * alignment;
}

Interval FlatLayout::partition(int rank) const {
  return {rank * partition_numel(), (rank + 1) * partition_numel()};
}

int64_t FlatLayout::padding(int rank) const {
  return intersect(partition(rank), {numel_, padded_numel_}).numel();
}

std::vector<ParamPiece> FlatLayout::pieces(const Interval& interval) const {
  std::vector<ParamPiece> result;
  const auto end_of = [](const PlacedParam& param) { return param.in_flat.end; };
  for (auto next = std::ranges::upper_bound(params_, interval.begin, {}, end_of); next != params_.end();
       ++next) {
    const PlacedParam& param = *next;
    if (param.in_flat.begin >= interval.end) break;
    const Interval common = intersect(param.in_flat, interval);
    if (common.empty()) continue;
    result.push_back({param.index,
                      {common.begin - interval.begin, common.end - interval.begin},
                      common.begin - param.in_flat.begin});
  }
  return result;
}

}  // namespace deepspeed::zero
