// How a sum over ranks becomes the gradient of the whole batch: the factors of DeepSpeed's
// prescale_gradients, gradient_predivide_factor and gradient_allreduce_op.
#pragma once

namespace deepspeed::zero {

/// The gradient is multiplied by `before`, summed over the ranks, multiplied by `after`. 1 means: no
/// multiplication.
struct Averaging {
  double before = 1.0;
  double after = 1.0;

  static Averaging mean(int world_size) { return {1.0, 1.0 / world_size}; }
  static Averaging prescaled_mean(int world_size) { return {1.0 / world_size, 1.0}; }
  static Averaging predivided_mean(int world_size, double factor) {
    return {1.0 / factor, factor / world_size};
  }
  static Averaging sum() { return {1.0, 1.0}; }
};

}  // namespace deepspeed::zero
