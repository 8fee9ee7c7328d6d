// Random hyperparameters of a trial.
#pragma once

#include <cstdint>

#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/hyperparameter.h"

namespace deepspeed::trial {

/// Draws the hyperparameters of a trial. Each value depends on the seed, the trial's number, and the path of
/// its name alone, so adding a hyperparameter leaves the others as they were. Distributions are Determined's:
/// uniform over an int's whole numbers, a double's range, a log's exponents, and a list of values.
Json sample_hyperparameters(const Space& space, uint64_t seed, int64_t trial);

}  // namespace deepspeed::trial
