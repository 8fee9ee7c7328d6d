// Tracks which slices have all of their gradients: pure bookkeeping.
#pragma once

#include <cstddef>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// Describes a part of what this rank owns of a group. interval: relative to the owned interval.
struct OwnedPart {
  size_t group = 0;
  Interval interval;
};

/// Counts which parts of each slice's gradients have arrived in one backward.
class SliceArrivals {
 public:
  /// slices: by index. parts: all parts of the gradients that will arrive, each once.
  SliceArrivals(std::vector<OwnedPart> slices, const std::vector<OwnedPart>& parts);

  /// Notes that a part has arrived. Returns the indices of slices that it completes, in ascending order.
  std::vector<size_t> note(const OwnedPart& part);

 private:
  std::vector<size_t> meeting(const OwnedPart& part) const;

  std::vector<OwnedPart> slices_;
  std::vector<size_t> missing_;  // [slice], parts
};

}  // namespace deepspeed::zero
