// One fused pass makes a step of Adam or AdamW over flat slices: it reads the gradient in its own dtype,
// scales it, updates both moments and the fp32 master, and writes the 16-bit copy of the weights. A master
// may be split into that copy and a lower half (split_master.h): its update is that of the fp32 number, bit
// for bit.
//
// Kingma and Ba, "Adam" (arXiv 1412.6980); Loshchilov and Hutter, "Decoupled Weight Decay" (arXiv
// 1711.05101). With g the scaled gradient, b1, b2 the betas and t the step:
//   L2 mode:  g += weight_decay * p
//   m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2
//   AdamW:    p -= lr * weight_decay * p
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::kernels {

struct AmsgradRule;

/// Holds the hyperparameters of one call. `step` counts from 1.
struct AdamStep {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;  // 1 leaves the second moment as it is, where there is no bias correction
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool adamw_mode = true;
  bool bias_correction = true;
  int64_t step = 1;
  double gradient_scale = 1.0;  // the gradient is multiplied by it: clipping and 1 / loss scale
  uint64_t rounding_seed = 0;   // stochastic rounding of 16-bit moments; vary it from step to step
  int64_t first_index = 0;      // index of the first element in a larger whole, for that rounding
};

/// Holds the tensors of the update: 1-D, of n elements, contiguous, on one device.
struct AdamTensors {
  // Is fp32, updated in place; or int16: the lower halves of split masters; or fp64, with all else in fp64.
  at::Tensor master;
  at::Tensor gradient;    // fp32, fp16 or bf16, read only
  at::Tensor exp_avg;     // fp32, or bf16 (rounded stochastically), updated in place
  at::Tensor exp_avg_sq;  // dtype of exp_avg
  // Gets the fp16 or bf16 copy of the new master; undefined: there is none. For split masters it is the upper
  // half, bf16, which is read too. On CPU the copy may be written over the gradient, where both have 16 bits.
  at::Tensor low_precision;
  // Is undefined, or one fp64 on the device of the others, which takes the place of AdamStep::gradient_scale.
  // By nan nothing is written: the step is skipped.
  at::Tensor gradient_scale = {};
};

/// Makes one update in place. Throws UsageError where sizes, dtypes or devices do not fit. Uses
/// at::get_num_threads() threads on CPU and the current stream on CUDA.
DEEPSPEED_API void adam(const AdamTensors& tensors, const AdamStep& step);

/// Returns the rule of Adam with amsgrad (Reddi et al. 2018) for a step, to be run by update().
DEEPSPEED_API AmsgradRule amsgrad_rule(const AdamStep& step);

/// Takes back the step that adam() made with the same arguments, by solving its equations for the old values:
/// right to within the roundings of that step (a first step's moments become 0), without a copy of anything.
/// The gradient must be the finite one of that step; one that was not finite cannot be taken back. Works in
/// double, piece by piece. Throws UsageError as adam() does, and for moments or masters of 16 bits, masters
/// of fp64, betas of 0 and a decay of lr * weight_decay of 1 and more, which lose the old values.
DEEPSPEED_API void adam_rollback(const AdamTensors& tensors, const AdamStep& step);

}  // namespace deepspeed::kernels
