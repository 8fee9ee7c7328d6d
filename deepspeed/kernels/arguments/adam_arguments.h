// The CPU and CUDA kernels get Adam's arguments as plain data, without a tensor type, so that nvcc never sees
// ATen.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/on_both.h"

namespace deepspeed::kernels {

/// Says which kind of masters an array holds. Masters of 16 bits are the weights themselves, rounded to
/// nearest; kLowerHalf stands for masters that are split (split_master.h) with `low_precision`, which is bf16
/// then.
enum class MasterForm { kFloat32, kFloat16, kBFloat16, kLowerHalf };

/// Points to arrays of `numel` elements. `low_precision` may be null, or on CPU the gradient; nothing else
/// overlaps.
struct AdamArrays {
  int64_t numel = 0;
  void* master = nullptr;
  MasterForm master_form = MasterForm::kFloat32;
  const void* gradient = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* low_precision = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  ElementType moment_type = ElementType::kFloat32;          // fp32 or bf16
  ElementType low_precision_type = ElementType::kBFloat16;  // fp16 or bf16
  // Is null, or on CUDA the gradient's scale, which takes the place of what the constants have of it.
  const double* gradient_scale = nullptr;
};

/// Holds what an update needs of the hyperparameters: derived in double, rounded to float once. The fraction
/// of the update is extended by sqrt(1 - beta2^t), which saves a multiplication an element.
struct AdamConstants {
  float gradient_scale = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float eps = 0;              // eps * sqrt(1 - beta2^t)
  float l2_decay = 0;         // added to the gradient, times the master
  float decoupled_decay = 0;  // lr * weight_decay, taken off the master
  float step_size = 0;        // lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  uint64_t rounding_seed = 0;
  int64_t first_index = 0;  // the first element's index in the random numbers

  // bf16 moments, whose update is bound by arithmetic, need fewer operations by these. The gradient is
  // scaled, and L2 decay added, only where there is L2 decay; else the scale is a part of these factors.
  float to_exp_avg = 0;         // one_minus_beta1
  float to_root_of_square = 0;  // sqrt(one_minus_beta2): its product with the gradient is squared
  // These give the fraction divided by the step size: m / (inverse_step_size * sqrt(v) + eps_over_step_size).
  // A step size of 0 is an infinite eps.
  float inverse_step_size = 1;
  float eps_over_step_size = 0;

  // The first two of these factors without the scale, which may become known on the device alone.
  double unscaled_to_exp_avg = 0;
  double unscaled_to_root_of_square = 0;
};

/// Puts the gradient's scale into the constants. It is rounded once, alike on the CPU and on the device.
DEEPSPEED_ON_BOTH inline void set_gradient_scale(AdamConstants& constants, double scale) {
  const double factor = constants.l2_decay == 0 ? scale : 1.0;
  constants.gradient_scale = static_cast<float>(scale);
  constants.to_exp_avg = static_cast<float>(constants.unscaled_to_exp_avg * factor);
  constants.to_root_of_square = static_cast<float>(constants.unscaled_to_root_of_square * factor);
}

}  // namespace deepspeed::kernels
