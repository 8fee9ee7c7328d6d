// How a step treats gradients, masters and states: what the config says of it.
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
  double gradient_clipping = 1.0;    // largest L2 norm of all gradients; 0: none
  bool check_overflow = false;       // skip a step whose gradients are not finite; false: it is applied
  bool sixteen_bit_masters = false;  // no fp32 masters: the model's own 16-bit weights are updated
  bool split_masters = false;  // of a model in bf16: its weights are the upper halves of the fp32 masters
  OptimizerOffload offload;    // stages 1 to 3
  ParamSet counted_elsewhere;  // parameters of which another rank has a copy that the norm counts
};

/// Throws UsageError where the options contradict each other, or ask for what this optimizer cannot do with
/// these parameters and ranks.
void check_step_options(const StepOptions& options, const ParamStore& store,
                        const optim::Optimizer& optimizer, const ZeroGroups& ranks);

}  // namespace deepspeed::zero
