// Says how one call of checkpoint() recomputes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/recompute/selective_policy.h"

namespace deepspeed::activation {

using TensorList = std::vector<at::Tensor>;
using TensorFunction = std::function<TensorList(TensorList)>;

/// Says how a region is recomputed: the part of a forward that one checkpoint() call runs.
struct RegionOptions {
  /// Runs forward without gradients, and a whole backward of the recomputed graph in backward. This is
  /// DeepSpeed's CheckpointFunction; at least one input must need a gradient. With false, the first saved
  /// tensor that backward needs makes the forward run again as far as necessary.
  bool use_reentrant = false;
  /// Keeps the results of the policy's operators instead of recomputing them. Null keeps none. Excludes
  /// use_reentrant.
  SharedPolicy keep = nullptr;
  /// Ends a recomputation at the last tensor that backward needs. There an exception leaves the function,
  /// which must not swallow it. With false the function runs to its end, and saving more tensors than in
  /// forward is an error too.
  bool stop_early = true;
  /// Names the region in errors, e.g. "layer 3".
  std::string name = "a checkpointed function";
  /// Distinguishes the region from others with the same function type and name. A warning then appears once
  /// per region. The pointer's target does not matter. Null: such regions count as one.
  const void* identity = nullptr;
  /// Adds the name to errors that the function throws when it runs again. Errors of torch, UsageError and
  /// CommError keep their class; any other std::exception becomes an Error that nests it. With false errors
  /// pass unchanged, for front ends whose exceptions name the region themselves.
  bool names_errors = true;
};

}  // namespace deepspeed::activation
