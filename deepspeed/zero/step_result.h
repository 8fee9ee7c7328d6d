// The result of a step.
#pragma once

#include <optional>

#include "deepspeed/zero/update/grad_norm.h"

namespace deepspeed::zero {

/// Holds the outcome of one step.
struct StepResult {
  bool applied = false;               // false: gradients were not finite, nothing changed
  std::optional<GradNorm> grad_norm;  // over all parameters, before clipping; absent if not computed
};

}  // namespace deepspeed::zero
