// Decides how a step cuts what a rank owns of a group into slices: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/interval.h"

namespace deepspeed::zero {

/// Cuts [0, numel) into equal pieces; the last one may be smaller. They have at most `piece_numel` elements,
/// or more if there would be over 4096 pieces. Returns at least one piece, which may be empty.
std::vector<Interval> equal_pieces(int64_t numel, int64_t piece_numel);

/// Returns how many pieces, from the first on, hold at most `ratio` of all elements.
size_t count_within(const std::vector<Interval>& pieces, double ratio);

}  // namespace deepspeed::zero
