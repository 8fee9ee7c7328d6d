// Where each parameter sits in the flat space of its group, who owns which interval, and what is padding: a
// pure value, computed once, that reducer, optimizer and checkpoint read. No tensor, no process group.
//
// The layout is DeepSpeed's (ZeRO stages 1 and 2): parameters one after the other, zeros at the end up to a
// multiple of 2 * world size, equal contiguous partitions that may cut a parameter anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// A parameter's place. `index` counts in the order in which the parameters were given.
struct PlacedParam {
  size_t index = 0;
  Interval in_flat;
};

/// The part of one parameter that lies inside an interval of the flat space.
struct ParamPiece {
  size_t index = 0;      // of the parameter, as given
  Interval in_interval;  // relative to the interval's begin
  int64_t offset_in_param = 0;
};

class FlatLayout {
 public:
  /// `numels`: elements of each parameter. With `round_robin` parameter k goes to list k mod world_size and
  /// the lists are joined, so that consecutive parameters land in different partitions. Throws UsageError for
  /// a negative size.
  FlatLayout(const std::vector<int64_t>& numels, int world_size, bool round_robin = false);

  int world_size() const { return world_size_; }
  int64_t numel() const { return numel_; }  // without padding
  int64_t padded_numel() const { return padded_numel_; }
  int64_t partition_numel() const { return padded_numel_ / world_size_; }
  /// The parameters in flat order.
  const std::vector<PlacedParam>& params() const { return params_; }
  /// The interval of the parameter that was given at `index`.
  Interval place(size_t index) const { return place_[index]; }
  Interval partition(int rank) const;
  /// Elements of a rank's partition that are padding.
  int64_t padding(int rank) const;
  /// The parameters that meet `interval`, in flat order; parameters without elements are left out.
  std::vector<ParamPiece> pieces(const Interval& interval) const;

 private:
  int world_size_;
  int64_t numel_ = 0;
  int64_t padded_numel_ = 0;
  std::vector<PlacedParam> params_;
  std::vector<Interval> place_;
};

}  // namespace deepspeed::zero
