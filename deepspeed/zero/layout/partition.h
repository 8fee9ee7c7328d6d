// Says where each parameter sits in its group's flat space, who owns which interval, and what is padding. It
// is a pure value without tensors or process groups. It is computed once and read by reducer, optimizer and
// checkpoints.
//
// The layout is DeepSpeed's (ZeRO stages 1 and 2). Parameters follow one another, with zeros at the end up to
// a multiple of 2 * world size. Partitions are equal and contiguous, and may cut a parameter anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// Says where a parameter lies in the flat space. `index` counts in the order given to FlatLayout.
struct PlacedParam {
  size_t index = 0;
  Interval in_flat;
};

/// Describes the part of one parameter inside an interval of the flat space.
struct ParamPiece {
  size_t index = 0;      // of the parameter, as given
  Interval in_interval;  // relative to the interval's begin
  int64_t offset_in_param = 0;
};

class FlatLayout {
 public:
  /// Places parameters of `numels` elements each. With `round_robin`, parameter k goes to list k mod
  /// world_size, and the lists are joined. Consecutive parameters then land in different partitions. Throws
  /// UsageError for a negative size and for a world size below 1.
  FlatLayout(const std::vector<int64_t>& numels, int world_size, bool round_robin = false);

  int world_size() const { return world_size_; }
  int64_t numel() const { return numel_; }  // without padding
  int64_t padded_numel() const { return padded_numel_; }
  int64_t partition_numel() const { return padded_numel_ / world_size_; }
  /// Returns the parameters in flat order.
  const std::vector<PlacedParam>& params() const { return params_; }
  /// Returns the interval of the parameter given at `index`.
  Interval place(size_t index) const { return place_[index]; }
  Interval partition(int rank) const;
  /// Returns how many elements of a rank's partition are padding.
  int64_t padding(int rank) const;
  /// Returns the pieces of parameters inside `interval`, in flat order. Parameters without elements have
  /// none.
  std::vector<ParamPiece> pieces(const Interval& interval) const;

 private:
  int world_size_;
  int64_t numel_ = 0;
  int64_t padded_numel_ = 0;
  std::vector<PlacedParam> params_;
  std::vector<Interval> place_;
};

}  // namespace deepspeed::zero
