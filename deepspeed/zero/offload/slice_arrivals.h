// Tracks which slices have all of their gradients: pure bookkeeping.
#pragma once

#include <cstddef>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// Describes a part of what this rank owns of a group.
struct OwnedPart {
  size_t group = 0;
  Interval interval;
};

/// Counts the arrivals of one backward.
class SliceArrivals {
 public:
  /// parts: all that will arrive, each once.
  SliceArrivals(std::vector<OwnedPart> slices, const std::vector<OwnedPart>& parts);

  /// Notes a part. Returns the slices that it completes, in ascending order.
  std::vector<size_t> note(const OwnedPart& part);

 private:
  std::vector<size_t> meeting(const OwnedPart& part) const;

  std::vector<OwnedPart> slices_;
  std::vector<size_t> missing_;  // [slice], parts
};

}  // namespace deepspeed::zero
