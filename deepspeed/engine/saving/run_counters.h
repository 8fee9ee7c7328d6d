// The counters say how far a training has come.
#pragma once

#include <cstdint>

namespace deepspeed {

struct RunCounters {
  int64_t micro_steps = 0;  // calls of step()
  int64_t global_steps = 0;
  int64_t global_samples = 0;
  int64_t skipped_steps = 0;           // of global_steps, for gradients that were not finite
  bool step_applied = false;           // whether the last call of step() updated the parameters
  int64_t backwards_since_update = 0;  // whose gradients no step has used; checkpoints hold none of them
  bool dropped_backwards = false;      // zero_grad() has given up those of this window
};

}  // namespace deepspeed
