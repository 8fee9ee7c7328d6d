// A step of Adam or AdamW over flat slices in one fused pass. It reads the gradient in its own dtype, scales
// it, updates both moments and the fp32 master, and writes the 16-bit copy of the weights. A master may be
// split into that copy and a lower half (split_master.h). A split master gets the same update as the fp32
// number, bit for bit.
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
  double beta2 = 0.999;  // 1 keeps the second moment; only without bias correction
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool adamw_mode = true;
  bool bias_correction = true;
  int64_t step = 1;
  double gradient_scale = 1.0;  // factor for the gradient: clipping and 1 / loss scale
  uint64_t rounding_seed = 0;   // for stochastic rounding of 16-bit moments; change it at every step
  int64_t first_index = 0;      // first element's index in the undivided array, for that rounding
};

/// Holds the tensors of the update: 1-D with n elements, contiguous, on one device.
struct AdamTensors {
  // fp32, updated in place; or int16, the lower halves of split masters; or fp64, with everything else in
  // fp64.
  at::Tensor master;
  at::Tensor gradient;    // fp32, fp16 or bf16, read-only
  at::Tensor exp_avg;     // fp32, or bf16 (rounded stochastically), updated in place
  at::Tensor exp_avg_sq;  // dtype of exp_avg
  // Receives the fp16 or bf16 copy of the new master; undefined: no copy. For split masters it is the bf16
  // upper half, which is also read. On CPU the copy may overwrite the gradient if both have 16 bits.
  at::Tensor low_precision;
  // Undefined, or one fp64 number on the device of the others, which replaces AdamStep::gradient_scale. If it
  // is nan nothing is written: the step is skipped.
  at::Tensor gradient_scale = {};
};

/// Updates master, moments and low_precision in place. Throws UsageError if sizes, dtypes or devices do not
/// fit. Uses at::get_num_threads() threads on CPU and the current stream on CUDA.
DEEPSPEED_API void adam(const AdamTensors& tensors, const AdamStep& step);

/// Returns the update() rule of Adam with amsgrad (Reddi et al. 2018) for a step.
DEEPSPEED_API AmsgradRule amsgrad_rule(const AdamStep& step);

/// Reverts the step that adam() made with the same arguments. It solves the equations for the old values,
/// which are exact up to that step's rounding, and needs no copy. A first step's moments become 0. `gradient`
/// must be that step's gradient; a step whose gradient was not finite cannot be reverted. Works in double,
/// piece by piece. Throws UsageError as adam() does, and for arguments that lose the old values: 16-bit
/// moments or masters, fp64 masters, betas of 0, and lr * weight_decay of 1 or more.
DEEPSPEED_API void adam_rollback(const AdamTensors& tensors, const AdamStep& step);

}  // namespace deepspeed::kernels
