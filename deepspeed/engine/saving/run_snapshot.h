// A snapshot holds what a load changes beside weights and states, so that it can be put back: counters,
// schedule, rates, loss scale, random streams and the place in the data.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/json.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/engine/saving/run_counters.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/precision/loss_scaler.h"

namespace deepspeed {

struct RunSnapshot {
  RunCounters counters;
  std::set<std::string> sparse_names;
  std::optional<Json> schedule;                // nothing: it is not loaded
  std::vector<optim::Hyperparameters> groups;  // [group]
  std::optional<precision::DynamicLossScaler> scaler;
  at::Tensor cpu_rng;
  at::Tensor cuda_rng;                            // undefined where it is not loaded
  std::map<std::string, at::Tensor> rng_streams;  // of CudaRNGStatesTracker
  std::optional<LoaderPosition> loader;
};

}  // namespace deepspeed
