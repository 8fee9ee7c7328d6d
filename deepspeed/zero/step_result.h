// What a step came to.
#pragma once

#include <optional>

#include "deepspeed/zero/update/grad_norm.h"

namespace deepspeed::zero {

/// Outcome of one step.
struct StepResult {
  bool applied = false;               // false: gradients were not finite, nothing changed
  std::optional<GradNorm> grad_norm;  // over all parameters, before clipping; none where not computed
};

}  // namespace deepspeed::zero
