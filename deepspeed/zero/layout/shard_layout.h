// Where the shards of stage 3 lie: a pure value, computed once, that parameters, reducer, optimizer and
// checkpoints read. No tensor, no process group.
//
// The layout is DeepSpeed's: each parameter is padded by itself to a multiple of the world size and cut into
// equal shards, rank r holds the r-th shard of every parameter. A rank's shards of one group lie one after
// the other in its flat space, in the order in which the parameters were given, padding included; consecutive
// parameters form sub-groups, which the optimizer steps one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"
#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// Consecutive parameters that are stepped together.
struct SubGroup {
  Interval in_flat;        // of each rank's flat space
  size_t first_param = 0;  // index as given
  size_t num_params = 0;
};

class ShardLayout {
 public:
  /// numels: elements of each parameter of one group. A sub-group ends with the parameter whose shard brings
  /// it to `sub_group_numel` elements of one rank or more. Throws UsageError for a negative size and a world
  /// size below 1.
  ShardLayout(const std::vector<int64_t>& numels, int world_size, int64_t sub_group_numel);

  int world_size() const { return world_size_; }
  size_t num_params() const { return numels_.size(); }
  /// Elements of the parameter that was given at `index`, without padding.
  int64_t numel(size_t index) const { return numels_[index]; }
  /// Elements of a rank's shard of it, with padding: the same on all ranks.
  int64_t shard_numel(size_t index) const { return place_[index].numel(); }
  int64_t padded_numel(size_t index) const { return shard_numel(index) * world_size_; }
  /// The interval of its shard in each rank's flat space.
  Interval place(size_t index) const { return place_[index]; }
  /// The elements of the parameter that are in the rank's shard, from the shard's begin on; the rest is
  /// padding.
  Interval elements(size_t index, int rank) const;
  /// Elements of the rank's shard of it that are padding.
  int64_t padding(size_t index, int rank) const;

  /// Elements of one rank's flat space, with padding.
  int64_t flat_numel() const { return place_.empty() ? 0 : place_.back().end; }
  /// Elements of all parameters, without padding.
  int64_t numel() const { return numel_; }
  const std::vector<SubGroup>& sub_groups() const { return sub_groups_; }
  /// The parameters that meet `interval` of the rank's flat space, in order; padding is left out.
  std::vector<ParamPiece> pieces(const Interval& interval, int rank) const;

 private:
  void make_sub_groups(int64_t sub_group_numel);

  int world_size_;
  int64_t numel_ = 0;
  std::vector<int64_t> numels_;
  std::vector<Interval> place_;
  std::vector<SubGroup> sub_groups_;
};

}  // namespace deepspeed::zero
