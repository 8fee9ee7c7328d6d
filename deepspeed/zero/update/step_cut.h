// How a step cuts what a rank owns of a group into slices: a pure value.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// Equal pieces of [0, numel), the last one perhaps smaller: of at most `piece_numel` elements, more only
/// where there would be over 4096 of them. At least one, which may be empty.
std::vector<Interval> equal_pieces(int64_t numel, int64_t piece_numel);

/// How many of the first pieces make up `ratio` of all their elements, or a little less.
size_t count_within(const std::vector<Interval>& pieces, double ratio);

}  // namespace deepspeed::zero
