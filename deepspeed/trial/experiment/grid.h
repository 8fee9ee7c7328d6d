// The grid of a space: all combinations of its points.
#pragma once

#include <cstdint>

#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/hyperparameter.h"

namespace deepspeed::trial {

/// Counts the points of the grid. Returns `most` + 1 if there are more than `most`. A range without a count
/// has one point, its middle.
int64_t grid_size(const Space& space, int64_t most);

/// Returns the hyperparameters at a point, 0 to grid_size() - 1. The last name changes fastest. Points are
/// Determined's: a count of 1 means the middle, an `int` has at most as many points as whole numbers, and
/// those are rounded to the nearest.
Json grid_point(const Space& space, int64_t point);

}  // namespace deepspeed::trial
