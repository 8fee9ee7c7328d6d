// How one call of checkpoint() recomputes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/recompute/selective_policy.h"

namespace deepspeed::activation {

using TensorList = std::vector<at::Tensor>;
using TensorFunction = std::function<TensorList(TensorList)>;

/// Says how a region, the part of a forward that one call of checkpoint() runs, is recomputed.
struct RegionOptions {
  /// Runs forward without gradients, and in backward a whole backward of the recomputed graph, as DeepSpeed's
  /// CheckpointFunction does; an input must need a gradient then. Else the first saved tensor that backward
  /// asks for makes the forward run again as far as it needs.
  bool use_reentrant = false;
  /// Keeps the results of these operators; null: of none. Not with use_reentrant.
  SharedPolicy keep = nullptr;
  /// Ends a recomputation at the last tensor that backward needs, by an exception that no code of the
  /// function may swallow. Else the function runs to its end, and saving more than in forward is an error
  /// too.
  bool stop_early = true;
  /// Names the region in errors, e.g. "layer 3".
  std::string name = "a checkpointed function";
  /// Tells the region from others of its function's type and its name, whatever it points to: what is said of
  /// a region is said once. Null: those are one.
  const void* identity = nullptr;
  /// Adds the name to what the function throws when it runs again: errors of torch, UsageError and CommError
  /// keep their class, any other std::exception becomes an Error that holds it. False: what it throws goes on
  /// as it is, for front ends whose exceptions name the region themselves.
  bool names_errors = true;
};

}  // namespace deepspeed::activation
