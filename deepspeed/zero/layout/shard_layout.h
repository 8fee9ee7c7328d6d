// Says where the shards of stage 3 lie. It is a pure value without tensors or process groups. It is computed
// once and read by parameters, reducer, optimizer and checkpoints.
//
// The layout is DeepSpeed's. Each parameter is padded to a multiple of the world size and cut into equal
// shards; rank r holds the r-th shard of every parameter. A rank's shards of one group follow each other in
// its flat space, padding included, in the order in which the parameters were given. Consecutive parameters
// form sub-groups, which the optimizer steps one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"
#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// Describes consecutive parameters that are stepped together.
struct SubGroup {
  Interval in_flat;        // in each rank's flat space
  size_t first_param = 0;  // index as given
  size_t num_params = 0;
};

class ShardLayout {
 public:
  /// Places the shards of a group's parameters, of `numels` elements each. A sub-group ends with the
  /// parameter whose shard brings it to at least `sub_group_numel` elements of one rank. Throws UsageError
  /// for a negative size and for a world size below 1.
  ShardLayout(const std::vector<int64_t>& numels, int world_size, int64_t sub_group_numel);

  int world_size() const { return world_size_; }
  size_t num_params() const { return numels_.size(); }
  /// Returns the number of elements of the parameter given at `index`, without padding.
  int64_t numel(size_t index) const { return numels_[index]; }
  /// Returns the number of elements of each rank's shard of the parameter, with padding.
  int64_t shard_numel(size_t index) const { return place_[index].numel(); }
  int64_t padded_numel(size_t index) const { return shard_numel(index) * world_size_; }
  /// Returns the interval of the parameter's shard in each rank's flat space.
  Interval place(size_t index) const { return place_[index]; }
  /// Returns the interval of the parameter's elements that the rank's shard holds. The rest of the shard is
  /// padding.
  Interval elements(size_t index, int rank) const;
  /// Returns how many elements of the rank's shard of the parameter are padding.
  int64_t padding(size_t index, int rank) const;

  /// Returns the number of elements of one rank's flat space, with padding.
  int64_t flat_numel() const { return place_.empty() ? 0 : place_.back().end; }
  /// Returns the number of elements of all parameters, without padding.
  int64_t numel() const { return numel_; }
  const std::vector<SubGroup>& sub_groups() const { return sub_groups_; }
  /// Returns the pieces of parameters inside `interval` of the rank's flat space, in order. Padding is left
  /// out.
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
