// Says how a step treats gradients, masters and states, from the config.
#pragma once

#include "deepspeed/zero/layout/param_set.h"
#include "deepspeed/zero/offload/optimizer_offload.h"

namespace deepspeed::optim {
class Optimizer;
}

namespace deepspeed::zero {

class ParamStore;
struct ZeroGroups;

struct StepOptions {
  double gradient_clipping = 1.0;    // largest L2 norm of all gradients; 0: no clipping
  bool check_overflow = false;       // skip a step with non-finite gradients; false: it is applied
  bool sixteen_bit_masters = false;  // no fp32 masters: the model's own 16-bit weights are updated
  bool split_masters = false;        // in a bf16 model, the weights are the upper halves of the fp32 masters
  OptimizerOffload offload;          // stages 1 to 3
  ParamSet counted_elsewhere;        // parameters whose norm is counted by another rank with a copy
};

/// Throws UsageError if the options contradict each other. Throws UsageError if the optimizer cannot do what
/// they ask for with these parameters and ranks.
void check_step_options(const StepOptions& options, const ParamStore& store,
                        const optim::Optimizer& optimizer, const ZeroGroups& ranks);

}  // namespace deepspeed::zero
