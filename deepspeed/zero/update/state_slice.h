// What the optimizer keeps of a part of a group, as checkpoints and inspections see it.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::zero {

/// A slice while somebody looks at it. Its tensors are shared with the optimizer.
struct StateSlice {
  Interval interval;            // of what this rank owns of the group
  at::Tensor master;            // (n) what is updated: fp32, or the parameters where there are 16-bit masters
  optim::SliceState state;      // no tensors before the first step
  bool stays_in_memory = true;  // false: its tensors have no elements after the visit
  /// Takes over copies as the slice's state. Throws UsageError where names or sizes do not fit.
  std::function<void(const optim::SliceState&)> load;
};

using VisitSlice = std::function<void(const StateSlice&)>;

/// Of any part of a group: (n) each. Shared with the optimizer where it lies in one slice that stays in
/// memory, else a copy.
struct GroupState {
  at::Tensor master;
  optim::SliceState state;
};

}  // namespace deepspeed::zero
