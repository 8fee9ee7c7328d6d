// The reentrant way of recomputation, DeepSpeed's CheckpointFunction: forward runs without a graph, and a
// backward inside of the backward computes gradients.
#pragma once

#include "deepspeed/activation/recompute.h"

namespace deepspeed::checkpointing {

class DEEPSPEED_API CheckpointFunction {
 public:
  /// Runs `function` without keeping a graph. At least one input needs a gradient, or none comes back;
  /// gradients of parameters are accumulated where the region's backward ends. Not for torch's grad() style
  /// of backward.
  static Tensors apply(const TensorFunction& function, const Tensors& inputs);
};

}  // namespace deepspeed::checkpointing
