#include "deepspeed/optim/whole_parameters.h"

#include <functional>
#include <numeric>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {

int64_t parameter_numel(const Segment& segment) {
  return std::accumulate(segment.shape.begin(), segment.shape.end(), int64_t{1}, std::multiplies<>());
}

void check_whole_parameter(const char* where, const FlatSlice& slice, const Segment& segment) {
  const int64_t numel = parameter_numel(segment);
  if (segment.offset_in_param != 0 || segment.in_slice.numel() != numel) {
    raise<UsageError>(where, "slice ", slice.id, " holds ", segment.in_slice.numel(), " of the ", numel,
                      " elements of parameter ", segment.param_index,
                      "; an optimizer that is not elementwise needs whole parameters: use ZeRO stage 0");
  }
}

const std::vector<Segment>& whole_parameters(const char* where, const FlatSlice& slice) {
  if (slice.segments == nullptr) {
    raise<UsageError>(where, "slice ", slice.id, " names no segments, which this class of optimizer needs");
  }
  for (const Segment& segment : *slice.segments) {
    check_whole_parameter(where, slice, segment);
  }
  return *slice.segments;
}

}  // namespace deepspeed::optim
