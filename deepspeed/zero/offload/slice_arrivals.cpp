#include "deepspeed/zero/offload/slice_arrivals.h"

#include <utility>

namespace deepspeed::zero {

SliceArrivals::SliceArrivals(std::vector<OwnedPart> slices, const std::vector<OwnedPart>& parts)
    : slices_(std::move(slices)), missing_(slices_.size(), 0) {
  for (const OwnedPart& part : parts) {
    for (const size_t slice : meeting(part)) ++missing_[slice];
  }
}

std::vector<size_t> SliceArrivals::meeting(const OwnedPart& part) const {
  std::vector<size_t> found;
  for (size_t index = 0; index < slices_.size(); ++index) {
    const OwnedPart& slice = slices_[index];
    if (slice.group == part.group && !intersect(slice.interval, part.interval).empty())
      found.push_back(index);
  }
  return found;
}

std::vector<size_t> SliceArrivals::note(const OwnedPart& part) {
  std::vector<size_t> complete;
  for (const size_t slice : meeting(part)) {
    if (--missing_[slice] == 0) complete.push_back(slice);
  }
  return complete;
}

}  // namespace deepspeed::zero
