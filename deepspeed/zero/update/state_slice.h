// What the optimizer keeps of a part of a group, as checkpoints and inspection see it.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::zero {

/// Shows a slice of the optimizer during a visit. Tensors are shared with the optimizer.
struct StateSlice {
  Interval interval;            // within what this rank owns of the group
  at::Tensor master;            // (n) the values that steps update: fp32 or fp64 masters, or 16-bit weights
  optim::SliceState state;      // no tensors before the first step
  bool stays_in_memory = true;  // false: its tensors have no elements after the visit
  /// Replaces the slice's state in the optimizer by a copy of the argument. Throws UsageError if names or
  /// sizes do not fit.
  std::function<void(const optim::SliceState&)> load;
};

using VisitSlice = std::function<void(const StateSlice&)>;

/// Holds masters and states of any part of a group: (n) each. They are shared with the optimizer if they are
/// in one slice that stays in memory; otherwise they are a copy.
struct GroupState {
  at::Tensor master;
  optim::SliceState state;
};

}  // namespace deepspeed::zero
