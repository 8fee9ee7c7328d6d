#include "deepspeed/optim/slices/whole_parameters.h"

#include <functional>
#include <numeric>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {

int64_t parameter_numel(const Segment& segment) {
  return std::accumulate(segment.shape.begin(), segment.shape.end(), int64_t{1}, std::multiplies<>());
}

bool is_whole(const Segment& segment) {
  return segment.offset_in_param == 0 && segment.in_slice.numel() == parameter_numel(segment);
}

const Segment* find_segment(const FlatSlice& slice, int64_t param_index) {
  for (const Segment& segment : *slice.segments) {
    if (segment.param_index == param_index) {
      return &segment;
    }
  }
  return nullptr;
}

void check_whole_parameter(const FlatSlice& slice, const Segment& segment,
                           const std::source_location& where) {
  if (!is_whole(segment)) {
    raise_at<UsageError>(where, "slice ", slice.id, " holds ", segment.in_slice.numel(), " of the ",
                         parameter_numel(segment), " elements of parameter ", segment.param_index,
                         "; an optimizer that is not elementwise needs whole parameters: use ZeRO stage 0");
  }
}

const std::vector<Segment>& segments_of(const FlatSlice& slice, const std::source_location& where) {
  if (slice.segments == nullptr) {
    raise_at<UsageError>(where, "slice ", slice.id,
                         " names no segments, which this class of optimizer needs");
  }
  return *slice.segments;
}

const std::vector<Segment>& whole_parameters(const FlatSlice& slice, const std::source_location& where) {
  const std::vector<Segment>& segments = segments_of(slice, where);
  for (const Segment& segment : segments) {
    check_whole_parameter(slice, segment, where);
  }
  return segments;
}

}  // namespace deepspeed::optim
